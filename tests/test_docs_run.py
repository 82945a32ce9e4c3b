"""Every block of commands and of Python in the documents runs, or says why it does not.

The blocks of a page run one after the other in one folder, with the project's real examples.
all-MiniLM-L6-v2 has a stand-in: a BERT of one layer with a tokenizer of a few words.
"""

from __future__ import annotations

import gc
import re
import shlex
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from doc_blocks import ROOT, Block, blocks_of, faults, filled, lines_of

from tests.atlasc.cli.command import run
from tests.test_docs import DOCUMENTS

PAGES = [page for page in DOCUMENTS if page.is_relative_to(ROOT)]
BLOCKS = [block for page in PAGES for block in blocks_of(page)]
RUN = [block for block in BLOCKS if block.language in ("", "python") and not block.not_run]
STAND_INS = {
    "MODEL": "examples/digits_vit/model",
    "FILE": "images.npz",
    "LABELLED": "examples/digits_vit/test.npz",
}
"""What the words in capitals of the commands stand for."""
SIMULATED = {"docs/tutorials/text-service.md"}
"""Pages whose encrypted programs would take an hour: every run has them on the simulator."""
LONG = {
    "README.md", "examples/tiny_llama/README.md", "docs/command-line.md",
    "docs/how-to/choose-a-point.md",
    "docs/paper.md", "docs/search.md", "docs/tutorials/service.md", *SIMULATED,
}  # fmt: skip
"""Pages that take long on the simulator as well: a quick run has their Python alone."""
IMAGES = 60
"""In FILE: as many as a search in seconds needs."""
_SUBSTITUTION = re.compile(r"^(\w+)=\$\((.*)\)$")
_REDIRECTED = re.compile(r"^(.*?) > (\S+)( 2>&1 &)?$")
ADDRESS = "127.0.0.1:8000"
"""Where the services of pages listen; a run gives them a free port."""
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "sat", "on", "the", "mat"]
TEXTS = """\
from pathlib import Path
import sys
import numpy as np
rng = np.random.default_rng(0)
lines = (" ".join(rng.choice({words!r}, rng.integers(3, 12))) for _ in range(60))
Path(sys.argv[1]).write_text("\\n".join(lines) + "\\n")
print("model")
"""


def small_bert() -> tuple[Any, Any]:
    """A BERT of one layer, and its tokenizer."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS), hidden_size=8, num_hidden_layers=1, num_attention_heads=1,
        intermediate_size=8, max_position_embeddings=64, attn_implementation="sdpa",
    )  # fmt: skip
    tokenizer = BertTokenizerFast(vocab={word: i for i, word in enumerate(WORDS)})
    return BertModel(config, add_pooling_layer=False).eval(), tokenizer


def is_quick(block: Block) -> bool:
    """Whether a quick run has it."""
    return block.page not in LONG or (block.language == "python" and block.page not in SIMULATED)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that looks like the repository to the commands, with the stand-in."""
    for name in ("digits_vit", "tiny_llama", "configs"):
        (tmp_path / "examples").mkdir(exist_ok=True)
        (tmp_path / "examples" / name).symlink_to(ROOT / "examples" / name)
    model, tokenizer = small_bert()
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "examples/minilm").mkdir()
    (tmp_path / "examples/minilm/texts.py").write_text(TEXTS.format(words=WORDS[5:]))
    with np.load(ROOT / "examples/digits_vit/calibration.npz") as file:
        np.savez(tmp_path / "images.npz", pixel_values=file["pixel_values"][:IMAGES])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))  # what clients of services keep
    return tmp_path


@pytest.fixture
def threads() -> Iterator[None]:
    """Torch has the threads of before, whatever a page's Python chose."""
    import torch

    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


class Page:
    """One run of a page: what its blocks leave to those after them.

    Attributes:
        target: words for commands that compile and name no target.
        simulated: whether clients must allow a simulation.
    """

    def __init__(self, target: tuple[str, ...] = ()) -> None:
        self.target, self.simulated = target, bool(target)
        self.variables, self.services = dict(STAND_INS), list[subprocess.Popen[bytes]]()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    def text(self, block: Block) -> str:
        """The text of a block, with this run's port."""
        return block.text.replace(ADDRESS, f"127.0.0.1:{self.port}")

    def commands(self, block: Block) -> None:
        """Run commands, each of which must succeed; ``NAME=$(...)`` sets a variable."""
        for line in lines_of(self.text(block)):
            found = _SUBSTITUTION.match(line)
            name, command = found.groups() if found else ("", line)
            for part in command.split(" && "):
                output = self.command(part, f"{block}: {line}")
            if name:
                self.variables[name] = output.strip()

    def command(self, command: str, where: str) -> str:
        """The output of one command; a file may take it, and a service goes on."""
        found = _REDIRECTED.match(command)
        command, file, background = found.groups() if found else (command, "", "")
        words = filled(shlex.split(command), self.variables)
        if words[:2] == ["atlasc", "compile"] and "--target" not in words:
            words += self.target
        if words[:2] == ["atlasc", "query"] and self.simulated:
            words.append("--allow-simulation")
        if background:
            self.start(words, Path(file))
            return ""
        output = self.stop() if words == ["kill", "%1"] else run_command(words, command, where)
        if file:
            Path(file).write_text(output)
        return output

    def start(self, words: list[str], log: Path) -> None:
        """Start a service of the page; it ends with the run, if the page does not end it."""
        assert words[:2] == ["atlasc", "serve"]
        serve = [sys.executable, "-m", *words, "--port", str(self.port)]
        with open(log, "wb") as file:
            self.services.append(subprocess.Popen(serve, stdout=file, stderr=subprocess.STDOUT))

    def stop(self) -> str:
        """End the service, as its operator does."""
        service = self.services.pop()
        service.terminate()
        assert service.wait(60) == 0
        return ""


def run_command(words: list[str], command: str, where: str) -> str:
    """The output of a command."""
    match words:
        case ["atlasc", *arguments]:
            return run(*arguments).out
        case ["python", *arguments]:
            words = [sys.executable, *arguments]
        case ["chmod" | "find", *_]:
            pass
        case ["until", *_]:
            words = ["bash", "-c", command]
        case _:
            pytest.fail(f"{where}: no test can run this; mark the block: <!-- not run: why -->")
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, f"{where}\n{done.stderr}"
    return done.stdout


def names_of(page: str) -> dict[str, Any]:
    """What a page's Python takes as given."""
    if page == "docs/fuzzing.md":
        from atlasc.search.front import Front
        from tests.fuzz.reader import Reader

        return {"Reader": Reader, "Front": Front, "write_some_fronts": lambda folder: []}
    if page == "docs/model-files.md":
        from transformers import AutoModelForImageClassification, ViTImageProcessor

        model = AutoModelForImageClassification.from_pretrained(STAND_INS["MODEL"])
        processor = ViTImageProcessor(size={"height": 8, "width": 8}, do_normalize=False)
        return {"model": model, "processor": processor, "images": pictures()}
    if page == "CONTRIBUTING.md":
        from atlasc.cli.commands import stages

        return {**vars(stages)}
    return {}


def pictures() -> list[np.ndarray]:
    """Digits as images of bytes, ``[1, 8, 8]``."""
    with np.load(ROOT / "examples/digits_vit/calibration.npz") as file:
        return [(255 * image).astype(np.uint8) for image in file["pixel_values"][:IMAGES]]


@pytest.mark.parametrize("page", sorted({block.page for block in RUN if is_quick(block)}))
@pytest.mark.usefixtures("threads", "place")
def test_the_blocks_of_a_page_run_on_the_simulator(
    page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs that a page compiles without naming a target are for the simulator."""
    run_simulated([b for b in RUN if b.page == page and is_quick(b)], monkeypatch)


@pytest.mark.deep("pages")
@pytest.mark.parametrize("page", sorted({block.page for block in RUN}))
@pytest.mark.usefixtures("threads", "place")
def test_the_blocks_of_a_page_run(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [block for block in RUN if block.page == page]
    if page in SIMULATED:
        run_simulated(blocks, monkeypatch)
    else:
        run_blocks(blocks, Page())


def run_simulated(blocks: list[Block], monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of one page; what they compile and ask is a simulation."""
    import atlasc

    monkeypatch.setattr(atlasc, "compile", partial(atlasc.compile, target="sim"))
    monkeypatch.setattr(atlasc, "connect", partial(atlasc.connect, allow_simulation=True))
    run_blocks(blocks, Page(("--target", "sim")))


def run_blocks(blocks: list[Block], page: Page) -> None:
    """Blocks of one page, one after the other."""
    names = names_of(blocks[0].page)
    last = max((i for i, block in enumerate(blocks) if block.language == "python"), default=-1)
    try:
        for i, block in enumerate(blocks):
            if block.language == "python":
                exec(compile(page.text(block), str(block), "exec"), names)
                if i == last:
                    # Programs and keys take gigabytes: the commands after them need the memory.
                    names.clear()
                    gc.collect()
            else:
                page.commands(block)
    finally:
        for service in page.services:
            service.kill()
            service.wait()


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_blocks_name_exists(page: Path) -> None:
    assert [fault for block in blocks_of(page) for fault in faults(block)] == []


def test_a_block_that_names_nothing_real_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- not run: a test -->\n```\natlasc compile MODEL --nothing -o b  # a comment\n"
        "atlasc forge x\nmake nothing\nmake test NOTHING=1\npython examples/nothing.py\n"
        "NAME=$(python -m benchmarks.nothing) && atlasc inspect b\n```\n"
        "```text\natlasc inspect b\n```\n\n```python\nx = = 1\n```\n"
    )
    shell, shown, python = blocks_of(page)
    assert (shell.not_run, shell.line, shown.not_run) == ("a test", 3, "")
    found = faults(shell)
    for part in ("--nothing", "forge", "has no nothing", "has no NOTHING", "examples/nothing.py"):
        assert sum(part in fault for fault in found) == 1, part
    assert any("no module benchmarks.nothing" in fault for fault in found)
    assert "looks like a command" in faults(shown)[0]
    assert "invalid syntax" in faults(python)[0]


def test_a_command_that_cannot_run_must_be_marked() -> None:
    with pytest.raises(pytest.fail.Exception, match="mark the block"):
        run_command(["make", "demo"], "make demo", "page.md:1")


def test_docstrings_have_no_doctests_that_nobody_runs() -> None:
    code = [*ROOT.glob("atlasc/**/*.py"), *ROOT.glob("passes/**/*.py"), *ROOT.glob("ir/**/*.py")]
    assert code
    assert [path for path in code if re.search(r"^\s*>>> ", path.read_text(), re.MULTILINE)] == []


def test_the_example_of_the_package_compiles_and_names_what_exists() -> None:
    import atlasc

    assert atlasc.__doc__ is not None
    example = textwrap.dedent(atlasc.__doc__.split("::\n", 1)[1].split("\nAll errors")[0])
    compile(example, "atlasc", "exec")
    for name in re.findall(r"atlasc\.(\w+)\(", example):
        assert name in atlasc.__all__
    for name in re.findall(r"program\.(\w+)\(", example):
        assert callable(getattr(atlasc.Program, name))
