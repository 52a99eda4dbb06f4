# SPDX-License-Identifier: Apache-2.0
"""Which pages the site has, and where: Markdown where it lies in the repository, in the order of docs/README.md.

A page keeps its path, so that links between files work on a Git host and in the site. What a page links to beside
pages, a source file or a folder, is shown on a page of its own.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
HOME = "docs/README.md"
TUTORIALS = "docs/tutorials/README.md"
IMAGES = {".png", ".svg"}
NOT_OURS = {"out", "build", "dist", "node_modules", "__pycache__"}
MOST_FILES = 30  # a folder of more is listed, and its files have no pages

_FENCED = re.compile(r"^(```+|~~~+).*?^\1", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_ENTRY = re.compile(r"^( *)- \[([^]]+)\]\(([^()\s]+)\)", re.MULTILINE)
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
_GROUP = re.compile(r"^### (.+)$", re.MULTILINE)

Nav = Sequence[Mapping[str, "str | Nav"]]


@dataclass(frozen=True)
class Entry:
    """A line of a list: a title, a page, and what is indented below it."""

    title: str
    page: str
    below: "list[Entry]" = field(default_factory=list["Entry"])

    def nav(self) -> Mapping[str, "str | Nav"]:
        """As MkDocs has it."""
        below = [each.nav() for each in self.below]
        return {self.title: [{self.title: self.page}, *below] if below else self.page}

    def pages(self) -> Iterator[str]:
        """Its own, and those below."""
        yield self.page
        for each in self.below:
            yield from each.pages()


def joined(page: str, link: str) -> str:
    """What a link in a page leads to, relative to the root; without the anchor."""
    name = link.partition("#")[0]
    return os.path.normpath(PurePosixPath(page).parent / name) if name else page


def entries(page: str, text: str) -> list[Entry]:
    """The lists of links in a text of that page."""
    found: list[Entry] = []
    for indent, title, link in _ENTRY.findall(text):
        entry = Entry(title, joined(page, link))
        (found[-1].below if indent and found else found).append(entry)
    return found


def sections(text: str, heading: re.Pattern[str]) -> list[tuple[str, str]]:
    """The parts of a text by their headings; what is before the first one has the heading ""."""
    first, *rest = heading.split(text)
    return [("", first), *zip(rest[::2], rest[1::2], strict=True)]


class Pages:
    """Of the repository at `root`."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root

    def text(self, page: str) -> str:
        return (self.root / page).read_text()

    @cached_property
    def files(self) -> list[str]:
        """What is in the repository, without what was built or installed there."""
        found: list[str] = []
        for folder, inside, names in os.walk(self.root):
            inside[:] = [name for name in inside if name not in NOT_OURS and not name.startswith(".")]
            inside[:] = [name for name in inside if not name.endswith(".egg-info")]
            found += [os.path.relpath(Path(folder, name), self.root) for name in names if not name.endswith(".so")]
        return sorted(found)

    @cached_property
    def markdown(self) -> list[str]:
        """Every page that somebody has written."""
        return [name for name in self.files if name.endswith(".md")]

    @cached_property
    def contents(self) -> dict[str, list[tuple[str, list[Entry]]]]:
        """By section of the home page, its groups ("": none) and their entries. The list of tutorials is on their own
        page."""
        found: dict[str, list[tuple[str, list[Entry]]]] = {}
        for section, text in sections(self.text(HOME), _SECTION)[1:]:
            groups = [(group, entries(HOME, part)) for group, part in sections(text, _GROUP)]
            if section == "Tutorials" and TUTORIALS in self.markdown:
                groups = [("", [Entry("Tutorials", TUTORIALS), *self.tutorials()])]
            found[section] = [(group, them) for group, them in groups if them]
        return {section: groups for section, groups in found.items() if groups}

    def tutorials(self) -> Iterator[Entry]:
        """What the list of tutorials links to beside it, in its order and by their own titles."""
        beside = [
            name for name in self.links(TUTORIALS) if PurePosixPath(name).parent == PurePosixPath(TUTORIALS).parent
        ]
        for name in dict.fromkeys(it for it in beside if it in self.markdown and it != TUTORIALS):
            title = _TITLE.search(self.text(name))
            yield Entry(title[1] if title else name, name)

    def nav(self, generated: Mapping[str, Mapping[str, str]]) -> Nav:
        """As MkDocs has it. `generated`: what follows in the section Reference, by group its titles and pages."""
        found: list[Mapping[str, str | Nav]] = [{"Home": HOME}]
        for section, groups in self.contents.items():
            inside: list[Mapping[str, str | Nav]] = []
            for group, them in groups:
                listed = [each.nav() for each in them]
                inside += [{group: listed}] if group else listed
            if section == "Reference":
                inside += [
                    {group: [{title: page} for title, page in made.items()]} for group, made in generated.items()
                ]
            found.append({section: inside})
        return found

    @cached_property
    def heads(self) -> set[str]:
        """The pages with others below them."""
        groups = [them for groups in self.contents.values() for _, them in groups]
        return {HOME, TUTORIALS, *(each.page for them in groups for each in them if each.below)}

    @cached_property
    def listed(self) -> list[str]:
        """The pages that the home page leads to, and itself."""
        groups = [them for groups in self.contents.values() for _, them in groups]
        return [HOME, *(page for them in groups for each in them for page in each.pages())]

    def links(self, page: str) -> Iterator[str]:
        """What a page links to in the repository, relative to the root."""
        for link in _LINK.findall(_FENCED.sub("", self.text(page))):
            if not re.match(r"[a-z]+:", link):
                yield joined(page, link)

    @cached_property
    def images(self) -> list[str]:
        """What pages show."""
        linked = {name for page in self.markdown for name in self.links(page)}
        return sorted(name for name in linked if PurePosixPath(name).suffix in IMAGES and (self.root / name).exists())

    @cached_property
    def shown(self) -> dict[str, str]:
        """Pages for what is none: by path in the site, the file or the folder."""
        wanted = {name for page in self.markdown for name in self.links(page)}
        for name in sorted(wanted):
            if (self.root / name).is_dir() and not self.readme(name) and len(self.inside(name)) <= MOST_FILES:
                wanted |= {each for each in self.inside(name) if language(Path(each)) != "text"}
        not_others = {*self.markdown, *self.images, *filter(self.readme, wanted)}
        others = sorted(name for name in wanted - not_others if (self.root / name).exists())
        return {f"{name}/.folder.md" if (self.root / name).is_dir() else f"{name}.md": name for name in others}

    def inside(self, folder: str) -> list[str]:
        """The files in a folder, and in those in it."""
        return [name for name in self.files if name.startswith(f"{folder}/")]

    def readme(self, folder: str) -> str | None:
        """The page that says what is in a folder, if somebody has written one."""
        name = f"{folder}/README.md"
        return name if name in self.markdown else None

    def in_the_site(self, page: str, text: str) -> str:
        """A page's text with links to pages, where the repository has a file or a folder."""
        parts: list[str] = []
        end = 0
        for fence in _FENCED.finditer(text):
            parts += [self._linked(page, text[end : fence.start()]), fence[0]]
            end = fence.end()
        return "".join([*parts, self._linked(page, text[end:])])

    def _linked(self, page: str, text: str) -> str:
        def other(match: re.Match[str]) -> str:
            name, hash_, anchor = match[1].partition("#")
            at = joined(page, name)
            if re.match(r"[a-z]+:", match[1]) or not name or at.endswith(".md") or at in self.images:
                return match[0]
            target = self.readme(at) or (f"{at}/.folder.md" if (self.root / at).is_dir() else f"{at}.md")
            return f"]({os.path.relpath(target, PurePosixPath(page).parent)}{hash_}{anchor})"

        return _LINK.sub(other, text)

    def source(self, name: str) -> str:
        """A file or a folder as a page."""
        path = self.root / name
        if path.is_dir():
            return self._folder(name)
        text = path.read_text(errors="replace")
        longest = max((len(it) for it in re.findall(r"^`{3,}", text, re.MULTILINE)), default=2)
        fence = "`" * (longest + 1)
        return f"# {path.name}\n\n`{name}`\n\n{fence}{language(path)}\n{text.rstrip()}\n{fence}\n"

    def _folder(self, name: str) -> str:
        lines = [f"# {name}/", ""]
        for each in self.inside(name):
            below = each.removeprefix(f"{name}/")
            pages = f"{each}.md" in self.shown or each.endswith(".md")
            lines.append(f"- [{below}]({below}{'' if each.endswith('.md') else '.md'})" if pages else f"- {below}")
        return "\n".join(lines) + "\n"


def language(path: Path) -> str:
    """How a source file is coloured, as Pygments calls it."""
    by_name = {"Containerfile": "docker", "Makefile": "make"}
    by_suffix = {
        ".py": "python",
        ".c": "c",
        ".h": "c",
        ".p4": "c",
        ".toml": "toml",
        ".yaml": "yaml",
        ".yml": "yaml",
        ".json": "json",
        ".sh": "bash",
        ".sbatch": "bash",
        ".lua": "lua",
        ".conf": "ini",
        ".service": "ini",
    }
    return by_name.get(path.name) or by_suffix.get(path.suffix, "text")


def address(page: str) -> str:
    """Where a page, a picture or a source lies in the site."""
    if page == HOME:
        return "index.html"
    name = page.removesuffix(".md")
    html = name != page
    if html and PurePosixPath(name).name == "README":
        name = f"{PurePosixPath(name).parent}/index" if PurePosixPath(name).parent.name else "overview"
    elif html and PurePosixPath(name).name == ".folder":
        name = f"{PurePosixPath(name).parent}/folder"
    name = name.removeprefix("docs/")
    return f"{name}.html" if html else name
