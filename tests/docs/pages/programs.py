# SPDX-License-Identifier: Apache-2.0
"""Python of the pages: all of a page in one program, in its order, after what its prose takes for granted."""

import re
from collections.abc import Sequence

from tests.docs.pages.page_blocks import Block

_NAMES = """\
import contextlib
import os

rank = int(os.environ["RANK"])
"""
_TORCH = """\
import torch
from torch.nn.parallel import DistributedDataParallel

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 1))
criterion = torch.nn.MSELoss()
batches = [(torch.randn(4, 8), torch.randn(4, 1)) for _ in range(3)]
optimizer = torch.optim.SGD(model.parameters(), 0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
scaler = torch.amp.GradScaler("cpu")
loss = criterion(model(batches[0][0]), batches[0][1])
if {gloo}:
    torch.distributed.init_process_group("gloo")
"""
_AFTER = """
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()
if "session" in globals():
    with contextlib.suppress(gradlane.AgentError):  # the page has closed it
        session.close()
    del session
"""
_JOB = """\
[job]
name = "pages"
id = 9
key = "00112233445566aa00112233445566aa"
[[worker]]
rank = 0
host = "h1"
address = "10.0.1.2"
[[worker]]
rank = 1
host = "h2"
address = "10.0.2.2"
[transport]
rate = "1gbit"
"""
_RUN = """\
mkdir -p "$TMPDIR/ranks" /run/h2
cat > "$TMPDIR/ranks/job.toml" <<'END_OF_FILE'
{job}END_OF_FILE
cat > "$TMPDIR/ranks/page.py" <<'END_OF_FILE'
{text}END_OF_FILE
[ -S /run/gradlane/agent.sock ] || gradlane agent --address 10.0.1.2
gradlane agent --address 10.0.2.2 --socket /run/h2/agent.sock
cd "$TMPDIR/ranks"
export WORLD_SIZE=2 LOCAL_WORLD_SIZE=1 MASTER_ADDR=10.0.1.2 MASTER_PORT=29555 GRADLANE_JOB=job.toml
"$programs/python" -m tests.docs.pages.ranks page.py /run/gradlane /run/h2
"""
# An entry of one table, and a frame that comes at once.
_SWITCH = """\
from finsy.proto import p4r
from google.protobuf import text_format

update = text_format.Parse(
    "type: MODIFY entity { meter_entry { meter_id: 335544322 index { } "
    "config { cir: 1 cburst: 1 pir: 1 pburst: 1 } } }",
    p4r.Update(),
)
frame, time = bytes(64), 0
"""


def commands_for(blocks: Sequence[Block]) -> str:
    """What runs a page's Python: a switch's in one process, all else by a training process on h1 and one on h2."""
    text = "".join(f"{block.text}\n" for block in blocks)
    if "import Switch" in text:
        return f"\"$programs/python\" - <<'END_OF_FILE'\n{_SWITCH}{text}END_OF_FILE\n"
    job = _JOB + ('[sync]\nscheme = "ds-sync"\n' if "synchronise(" in text else "")
    if re.search(r"torch|scaler", text):
        names = _NAMES + _TORCH.format(gloo="DistributedDataParallel(" in text)
        text = names + "".join(f"{block.text}\n{_AFTER}" for block in blocks)
    else:
        text = _NAMES + text
    return _RUN.format(job=job, text=text)
