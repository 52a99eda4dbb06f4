# SPDX-License-Identifier: Apache-2.0
"""What the pages' commands can't do in a test is checked instead, as far as that goes: NAME, and its arguments."""

import configparser
import json
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tomllib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from packaging.requirements import Requirement

PROGRAMS = Path(sys.executable).parent
ROOT = Path(__file__).parents[3]
STAND_INS: dict[str, tuple[Callable[[list[str]], None], str]] = {}


def stands_in(*names: str, because: str) -> Callable[[Callable[[list[str]], None]], Callable[[list[str]], None]]:
    """Of these programs; `because`: why they are not run themselves."""

    def listed(function: Callable[[list[str]], None]) -> Callable[[list[str]], None]:
        STAND_INS.update(dict.fromkeys(names, (function, because)))
        return function

    return listed


def must(condition: object, words: str) -> None:
    if not condition:
        sys.exit(f"wrong: {words}")


def run(*command: str, **options: str) -> str:
    """What it prints; ends with its error."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **options})
    must(not done.returncode, f"{shlex.join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


@stands_in("pip", because="it downloads; `make test-dist` and `make test-frameworks` install")
def pip(arguments: list[str]) -> None:
    must(arguments.pop(0) == "install", "pip does not install")
    words = iter(arguments)
    for word in words:
        if word == "-r":
            for line in Path(next(words)).read_text().splitlines():
                if line.strip() and line[:1] not in "#-":
                    Requirement(line.partition(" #")[0])
        elif word.startswith("-"):
            must(word in ("-q", "-e"), f"pip has no {word}, as far as pages need")
        elif re.match(r"\./|agent$", word):
            folder, _, extras = word.rstrip("]").partition("[")
            known = tomllib.loads((Path(folder) / "pyproject.toml").read_text())["project"]
            must(not extras or extras in known.get("optional-dependencies", {}), f"no extra {extras} of {folder}")
        elif word.endswith(".whl"):
            part = word.partition("-")[0].removeprefix("gradlane_")
            must(part in ("gradlane", "switch", "controller"), f"no package makes {word}")
        else:
            Requirement(word)


@stands_in("venv", because="it would be empty, as pip downloads; it has the programs of the tests' environment")
def venv(arguments: list[str]) -> None:
    [folder] = arguments
    programs = Path(folder) / "bin"
    programs.mkdir(parents=True)
    for program in PROGRAMS.iterdir():
        if program.is_file() and not program.name.startswith("python"):
            (programs / program.name).symlink_to(program)
    for name in ("python", "python3"):
        (programs / name).write_text(f'#!/bin/sh\nexec {PROGRAMS}/python "$@"\n')
        (programs / name).chmod(0o755)
    (programs / "activate").write_text(f"export PATH={programs.resolve()}:$PATH VIRTUAL_ENV={Path(folder).resolve()}\n")


@stands_in("make", because="its targets take minutes; make itself says what they would run, and with which flags")
def make(arguments: list[str]) -> None:
    script = run("make", "-n", *arguments)
    command = re.compile(r"(?:bin/|^|\s)python3? (-m [\w.]+|[\w/]+\.py)([^\n;&|)]*)", re.MULTILINE)
    given = [value for it in arguments if (value := it.partition("=")[2]).startswith("--")]
    for program, rest in command.findall(script.replace("\\\n", "")):
        words = shlex.split(rest)
        if program == "deploy/man.py":
            run(str(PROGRAMS / "python"), program, *words)
        elif any(it in rest for it in given) or "mininet/" in program:
            flags_exist([str(PROGRAMS / "python"), *program.split()], words)
    for value in given:
        must(value in script, f"nothing is run with {value}")


def flags_exist(command: list[str], words: list[str]) -> None:
    """Its help comes after what is before it, so a wrong value ends it; a flag that it does not have is not in it."""
    extended = os.pathsep.join([str(ROOT), str(ROOT / "mininet"), str(ROOT / "sim"), os.environ.get("PYTHONPATH", "")])
    known = run(*command, *words, "--help", PYTHONPATH=extended)
    for word in words:
        flag = word.partition("=")[0]
        must(not flag.startswith("--") or re.search(rf"{flag}\b", known), f"{shlex.join(command)} has no {flag}")


@stands_in("systemctl", because="no systemd runs here; `deploy/test_units.py` has it verify the units")
def systemctl(arguments: list[str]) -> None:
    action, *rest = arguments
    known = {"daemon-reload", "enable", "disable", "start", "stop", "restart", "reload", "kill"}
    must(action in known, f"systemctl {action}")
    units = [word for word in rest if not word.startswith("-") and word != "HUP"]
    must(bool(units) == (action != "daemon-reload"), "a unit, of all but daemon-reload")
    for unit in units:
        name = re.sub(r"@.*", "@", unit) + ".service"
        found = [it for it in (Path("/etc/systemd/system"), ROOT / "deploy/systemd") if (it / name).is_file()]
        must(found or unit == "prometheus", f"no unit {name}")
        if action == "enable":
            must(found[0] != ROOT / "deploy/systemd", f"{name} is not installed")
            parser = configparser.ConfigParser(strict=False, interpolation=None)
            parser.optionxform = str  # type: ignore[assignment]
            parser.read(found[0] / name)
            program = parser["Service"]["ExecStart"].split()[0]
            must(os.access(program, os.X_OK), f"{program} of {name} is not installed")


@stands_in("docker", because="no daemon and no registry; `deploy/test_containers.py` has what the images run")
def docker(arguments: list[str]) -> None:
    flags = {it for it in arguments if it.startswith("--")}
    if arguments[0] == "build":
        file, target = (arguments[arguments.index(it) + 1] for it in ("-f", "--target"))
        must(re.search(rf" AS {target}$", Path(file).read_text(), re.MULTILINE), f"{file} makes no {target}")
        must(Path(arguments[-1]).is_dir(), f"no folder {arguments[-1]}")
        return
    must(arguments[0] == "run", f"docker {arguments[0]}")
    version = (ROOT / "VERSION").read_text().strip()
    images = [it for it in arguments if re.fullmatch(r"gradlane-\w+:\S+", it)]
    must(len(images) == 1 and images[0].endswith(f":{version}"), f"which image, of version {version}?")
    flags -= {it for it in arguments[arguments.index(images[0]) :] if it.startswith("--")}
    if shutil.which("docker"):
        known = run("docker", "run", "--help")
        must(all(re.search(rf"{it}\b", known) for it in flags), f"docker run has not all of {sorted(flags)}")


@stands_in("kubectl", because="there is no cluster; kubectl itself does what it can without one")
def kubectl(arguments: list[str]) -> None:
    match arguments[2:] if arguments[0] == "-n" else arguments:
        case ["apply", "-k", folder]:
            must("kind: DaemonSet" in run("kubectl", "kustomize", folder), f"{folder} makes no agents")
        case ["apply", *files]:
            must(files[::2] == ["-f"] * (len(files) // 2), "kubectl apply -f FILE ...")
            for file in files[1::2]:
                must(Path(file).is_file(), f"no file {file}")
        case ["create", *_]:
            run("kubectl", *arguments, "--dry-run=client", "-o", "name")
        case ["label", kind, *rest]:
            names, labels = [it for it in rest if "=" not in it], [it for it in rest if "=" in it]
            must(kind in ("node", "namespace") and names and labels, "kubectl label KIND NAME ... LABEL=VALUE")
            label_is_used(labels[0].partition("=")[0])
        case ["exec", pod, "--", program, *rest]:
            must(pod == "controller-0", f"no pod {pod}")
            run(str(PROGRAMS / program), *rest, "--help")
        case ["get", kind, *_]:
            must(kind == "pods", f"kubectl get {kind}")
        case _:
            must(False, f"kubectl {shlex.join(arguments)}")


def label_is_used(label: str) -> None:
    """Of nodes and namespaces: the objects of deploy/kubernetes select by it, or Kubernetes itself does."""
    texts = "".join(it.read_text() for it in (ROOT / "deploy/kubernetes").rglob("*.yaml"))
    must(label in texts or label == "pod-security.kubernetes.io/enforce", f"nothing looks at the label {label}")


@stands_in("helm", because="there is no cluster; `deploy/test_helm.py` has helm make the chart's objects, where it is")
def helm(arguments: list[str]) -> None:
    must(arguments[:2] == ["upgrade", "--install"], "helm upgrade --install")
    name, chart, *rest = arguments[2:]
    values = [it for flag, it in pairwise(rest) if flag in ("--set", "--set-file")]
    schema = json.loads((Path(chart) / "values.schema.json").read_text())
    for key, _, value in (it.partition("=") for it in values):
        at = schema
        for part in key.split("."):
            at = at.get("properties", {}).get(part) or at.get("additionalProperties")
            must(isinstance(at, dict), f"the chart has no value {key}")
            assert isinstance(at, dict)
            at = schema["$defs"][at["$ref"].rpartition("/")[2]] if "$ref" in at else at
        must(f"--set-file {key}" not in " ".join(rest) or Path(value).is_file(), f"no file {value}")
    if shutil.which("helm"):
        run("helm", "template", name, chart, *rest)


@stands_in("npm", because="its packages are not here; `make page` and `make test` install and run them")
def npm(arguments: list[str]) -> None:
    scripts = json.loads((ROOT / "controller/page/package.json").read_text())["scripts"]
    must(arguments[-1] in scripts, f"no script {arguments[-1]}")


@stands_in("sbatch", because="`deploy/test_slurm.py` has a cluster, and trains by this script")
def sbatch(arguments: list[str]) -> None:
    [script] = arguments
    must("#SBATCH" in Path(script).read_text(), f"{script} is no batch script")
    run("bash", "-n", script)


@stands_in("sysctl", because="the kernel is the machine's; it must have what is set")
def sysctl(arguments: list[str]) -> None:
    must(arguments[0] == "-p", "sysctl -p FILE")
    for line in Path(arguments[1]).read_text().splitlines():
        if line and line[0] != "#":
            key, _, value = line.partition("=")
            must(Path("/proc/sys", key.strip().replace(".", "/")).exists() and int(value), f"the kernel has no {key}")


@stands_in("torchrun", because="of several machines: `gradlane/torch` has tests with those; here its parser takes them")
def torchrun(arguments: list[str]) -> None:
    if "--nnodes" not in arguments:
        os.execv(PROGRAMS / "torchrun", ["torchrun", *arguments])
    run(
        str(PROGRAMS / "python"),
        "-c",
        "import sys; from torch.distributed.run import parse_args; parse_args(sys.argv[1:])",
        *arguments,
    )


@stands_in("pyright", "lint-imports", because="`make test` begins with them")
def lint(arguments: list[str]) -> None:
    makefile = (ROOT / "Makefile").read_text()
    must("pyright --pythonpath" in makefile and "lint-imports" in makefile, "make test has other checks")
    must(not arguments or Path(arguments[-1]).exists(), f"no {arguments[-1]}")


@stands_in("pytest", because="tests in tests: it says which it would run")
def pytest(arguments: list[str]) -> None:
    paths = [it for it in arguments if it.startswith("tests")]
    must(paths and all(Path(it).exists() for it in paths), f"no such tests: {paths}")
    narrow = all(it.endswith(".py") for it in paths)  # all tests of a folder are many
    words = [it if narrow or it not in paths else "tests/docs/test_links.py" for it in arguments]
    run(str(PROGRAMS / "python"), "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *words)


@stands_in("tests.differential.record", "tests.differential.random_programs", because="they compare with BMv2")
def differential(arguments: list[str]) -> None:
    must(all(it.isdigit() for it in arguments), "numbers")


@stands_in("p4c-bm2-ss", because="`make p4` has it; the program's committed output")
def p4c(arguments: list[str]) -> None:
    flag, p4info, out, program, source = arguments
    must((flag, out) == ("--p4runtime-files", "-o") and Path(source).is_file(), "p4c-bm2-ss --p4runtime-files P -o J F")
    for made, name in ((p4info, "gradlane.p4info.txtpb"), (program, "gradlane.json")):
        shutil.copy(ROOT / "p4src/build/v1model" / name, made)


@stands_in("gradlane_sim", because="its studies take minutes; they are known, and so are all words and flags")
def simulator(arguments: list[str]) -> None:
    flags_exist([str(PROGRAMS / "python"), "-m", "gradlane_sim"], arguments)


@stands_in("example", because="each waits for the other rank; `examples/test_examples.py` runs both")
def example(arguments: list[str]) -> None:
    source = Path(arguments[0]).read_text()
    for word, value in zip(arguments[1::2], arguments[2::2], strict=True):
        must(f'"{word}"' in source, f"{arguments[0]} has no {word}")
        must(word != "--job" or Path(value).is_file(), f"no {value}")


@stands_in("runuser", because="the user's rights are not those of a test's folders; the command runs all the same")
def runuser(arguments: list[str]) -> None:
    flag, user, dashes, *command = arguments
    must((flag, dashes) == ("-u", "--") and f"\n{user}:" in Path("/etc/passwd").read_text(), f"no user {user}")
    os.execv(command[0], command)


@stands_in("tcpdump", because="nothing comes that it would wait for; an empty capture")
def tcpdump(arguments: list[str]) -> None:
    interface, file = (arguments[arguments.index(it) + 1] for it in ("-i", "-w"))
    must(Path("/sys/class/net", interface).exists(), f"no interface {interface}")
    Path(file).write_bytes(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 256, 1))


def main() -> None:
    name, *arguments = sys.argv[1:]
    STAND_INS[name][0](arguments)


if __name__ == "__main__":
    main()
