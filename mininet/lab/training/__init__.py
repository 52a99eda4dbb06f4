# SPDX-License-Identifier: Apache-2.0
"""The training side of the experiment: workers, the parameter-server baseline, background bursts.

`config` needs no PyTorch, so the experiment runner can import it; `worker` does.
"""
