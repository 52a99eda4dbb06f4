# SPDX-License-Identifier: Apache-2.0
"""Blocks of pages that are no commands or programs to be run as they stand: what they are, and what proves them."""

from dataclasses import dataclass

from tests.docs.pages.page_blocks import Block


@dataclass(frozen=True)
class By:
    """Another test takes its text from the page, and runs or compares it."""

    test: str


@dataclass(frozen=True)
class WrittenTo:
    """It ends a file of that path before the page's commands run; one of them reads it."""

    path: str


@dataclass(frozen=True)
class Part:
    """Of a file, or all of it: the reader of such files takes it, which `test_parts_of_files.py` has by this name."""

    of: str


@dataclass(frozen=True)
class NotRun:
    """No machine can take it."""

    because: str


Kind = By | WrittenTo | Part | NotRun

DIAGRAM = By("docs/site/test_browser.py::test_every_diagram_is_drawn")
FRAMEWORKS = By("frameworks/test_page.py::test_a_program_of_the_page_learns")
NUMPY = By("docs/test_python_page.py::test_every_example_of_the_pages_runs")
JOB = Part("job")
ON_RANKS = "for rank in 0 1; do RANK=$rank GRADLANE_SOCKET=process GRADLANE_JOB=examples/job.toml python train.py"
LAUNCHED = "GRADLANE_SOCKET=process GRADLANE_JOB=examples/template.toml "

# By the page, and what a block begins with.
SPECIAL: dict[str, dict[str, Kind]] = {
    "CONTRIBUTING.md": {"Congestion: ": NotRun("the subject of a commit")},
    "docs/accuracy.md": {"sum of all g = ": NotRun("a formula")},
    "docs/agent.md": {
        'address = "10.0.1.2"': Part("agent"),
        "agent 0.1.0 of": By("gradlane/commands/test_status.py::test_the_page_shows_what_top_prints"),
        "/var/log/gradlane/*.log": Part("logrotate"),
    },
    "docs/aggregation.md": {
        "[transport]": JOB,
        "gradlane-switch trace": By("p4src/sums/test_traces.py::test_the_page_shows_what_a_trace_prints"),
        "table GradlaneIngress": By("p4src/sums/test_traces.py::test_the_page_shows_what_a_trace_prints"),
    },
    "docs/choosing.md": {"[sync]": JOB},
    "docs/commodity-switches.md": {"[transport]": JOB, "{": Part("sonic")},
    "docs/files.md": {"fabric.toml:": Part("mistakes"), "[[switch]]": Part("fabric"), "[job]": JOB},
    "docs/jax.md": {"import jax": FRAMEWORKS, ON_RANKS: FRAMEWORKS},
    "docs/kubernetes.md": {"configMapGenerator:": WrittenTo("deploy/kubernetes/mine/kustomization.yaml")},
    "docs/mxnet.md": {"import mxnet": FRAMEWORKS, ON_RANKS: FRAMEWORKS},
    "docs/operations.md": {
        "fabric = ": WrittenTo("/etc/gradlane-controller/controller.toml"),
        "device_id = ": By("gradlane/test_flag_file.py::test_the_guides_configurations_are_taken"),
    },
    "docs/page.md": {"http://127.0.0.1:9560/": NotRun("an address; `page/test_session.py` opens such ones")},
    "docs/protocol.md": {
        "(2 + ln N": By(
            "gradlane/core/protocol/test_model.py::test_probes_are_bounded_by_what_the_loss_makes_necessary"
        ),
        "message = message_base": NotRun("a formula"),
    },
    "docs/python.md": {"import numpy": NUMPY},
    "docs/ray.md": {"import ray": By("frameworks/test_ray.py::test_workers_on_two_nodes_learn_the_same_model")},
    "docs/slurm.md": {
        "Prolog=": By("deploy/test_slurm.py::test_a_batch_script_trains_by_agents_that_come_and_go_with_it")
    },
    "docs/stragglers.md": {"[loss.late]": JOB, "[transport]": JOB},
    "docs/sync/README.md": {"[sync]": JOB, "import numpy": NUMPY},
    "docs/sync/ripples.md": {"[job]": JOB},
    "docs/tensorflow.md": {"import tensorflow": FRAMEWORKS, "import keras": FRAMEWORKS, ON_RANKS: FRAMEWORKS},
    "docs/trainers.md": {
        f"{LAUNCHED}torchrun": FRAMEWORKS,
        f"{LAUNCHED}accelerate": By("frameworks/test_page.py::test_accelerates_launcher_starts_a_program_of_the_page"),
        "import torch": FRAMEWORKS,
        "import lightning": FRAMEWORKS,
        "import os": By("frameworks/test_torchft.py::test_a_replica_group_dies_and_another_comes"),
        "from torchft.local_sgd": By("docs/test_python_page.py::test_diloco_of_torchft_is_as_its_worker_has_it"),
    },
}
UPGRADE = By("deploy/test_upgrade.py::test_the_guide_is_followed_word_for_word_and_no_slice_is_lost")


def kind_of(block: Block) -> Kind | None:
    """None of what is run as it stands."""
    if block.language == "mermaid":
        return DIAGRAM
    if block.page == "docs/upgrade.md" and "on every host" not in block.text:
        return UPGRADE
    found = [kind for first, kind in SPECIAL.get(block.page, {}).items() if block.first.startswith(first)]
    return found[0] if found else None
