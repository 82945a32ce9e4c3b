"""Every function of the C++ runtime that opens or parses what somebody else wrote is fuzzed.

They are found in the sources. ``READ_BY`` says which reader of a fuzzer goes through each, or why
none does; a function that is not in it fails here.
"""

from __future__ import annotations

import re
from pathlib import Path

from cpp_build import RUNTIME

from tests.atlasc.emit.files.test_fuzz import READERS
from tests.runtime_cuda.ckks.test_changed_files import FILES

FUZZ = Path(__file__).parent / "fuzz" / "fuzz.cpp"
SUFFIXES = (".cpp", ".hpp", ".cu", ".cuh")
OPENS = re.compile(
    r"(?<![\w.>])(::open|::read|::pread|::recv|::mmap|::fopen|fopen|fread|fgets|sscanf|parse_json"
    r"|TensorFile|PlainFile|std::getline|std::sto\w+|std::strto\w+|std::from_chars)\s*(\w+)?[({]"
    r"|std::[io]*f?stream\s+\w+\(|const Bytes& \w+[,)]|\.require_seal\("
)
"""What opens a file, parses text, or takes bytes for something."""
FUNCTION = re.compile(
    r"(?:    )?(?!return|throw|if|for|while|else|using|case|switch|const auto|namespace|struct|: )"
    r"(?:[\w:<>,&*\[\]]+ )*[&*]?((?:\w+::)*~?\w+)\((?!.*;$)"
)
"""The first line of a definition."""
_HERE = "this machine has it, or its user's environment"
_OURS = "this process made it"
READ_BY: dict[str, tuple[str, ...]] = {
    "ckks/ciphertext_files.cpp:CkksEngine::load": ("ckks ciphertext", "ckks query", "ckks answer"),
    "ckks/keys/key_files.cpp:seed_of": ("ckks evaluation",),
    "ckks/keys/key_files.cpp:open": ("ckks secret", "ckks evaluation", "ckks public"),
    "ckks/keys/key_files.cpp:loaded": ("ckks evaluation",),
    "ckks/keys/keys.cpp:number_by": ("ckks evaluation",),
    "python/module.hpp:fill": ("query", "weights"),
    "python/programs.cpp:define_programs": ("program", "text"),
    "python/roles.cpp:define_messages": ("query", "answer"),
    "sim/sim_backend.cpp:open": ("secret", "evaluation", "public"),
    "sim/sim_files.cpp:SimEngine::load": ("ciphertext", "query", "answer"),
    "src/base/files.cpp:PlainFile::PlainFile": ("header",),
    "src/base/files.cpp:PlainFile::read": ("header",),
    "src/base/json.cpp:number": ("json",),
    "src/base/json.cpp:parse_json": ("json",),
    "src/base/tensor_file.cpp:convert": ("header", "weights"),
    "src/base/tensor_file.cpp:TensorFile::TensorFile": ("header",),
    "src/base/tensor_file.cpp:TensorFile::read_header": ("header",),
    "src/program_file.cpp:functions_in": ("program", "text"),
    "src/program_file.cpp:read_text": ("program", "text"),
    "src/record.cpp:numbers_of": ("weights",),
    "src/record.cpp:Record::add": ("weights",),
    "src/roles/client.cpp:Client::received": ("answer",),
    "src/roles/client_main.cpp:client_main": ("text",),
    "src/roles/client_main.cpp:encrypt": ("header",),
    "src/roles/ledger.cpp:Ledger::Ledger": ("ledger",),
    "src/roles/ledger.cpp:Ledger::read": ("ledger",),
    "src/roles/ledger.cpp:Ledger::read_line": ("ledger",),
    "src/roles/messages.cpp:facts_of": ("query", "answer"),
    "src/roles/server.cpp:server": ("weights",),
    "src/roles/server.cpp:serve": ("program",),
    "src/roles/server.cpp:execute": ("query", "weights"),
    "src/roles/server.cpp:opened": ("weights",),
    "src/roles/server.cpp:weights": ("weights",),
    "src/roles/server.cpp:Server::execute": ("query",),
}
"""Function, as file and name -> readers."""
NOT_FUZZED = {
    "src/base/system.cpp:kernel_fact": _HERE,
    "src/base/system.cpp:map_pages": _OURS,
    "src/base/drafts.cpp:remove_stale": _HERE,
    "src/base/drafts.cpp:Draft::make": _HERE,
    "src/base/drafts.cpp:Draft::publish": _HERE,
    "src/base/threads.cpp:wanted_threads": _HERE,
    "src/carried_parameters.cpp:carried_parameter_set": _OURS,
}
"""Function -> why none reads it."""


def openings(text: str, header: bool) -> set[str]:
    """Functions of a source that open something; of a header those with a body in it."""
    found, function = set[str](), ""
    for line in text.splitlines():
        code = line.partition("//")[0].rstrip()
        if begun := FUNCTION.match(code):
            function = begun[1]
        indent = len(code) - len(code.lstrip())
        if OPENS.search(code) and indent >= (8 if header else 0):
            found.add(function)
    return found


def test_every_reader_is_fuzzed() -> None:
    found = {
        f"{path.relative_to(RUNTIME)}:{function}"
        for path in RUNTIME.rglob("*")
        if path.suffix in SUFFIXES
        for function in openings(path.read_text(), path.suffix in (".hpp", ".cuh"))
    }
    assert sorted(found - READ_BY.keys() - NOT_FUZZED.keys()) == []
    assert sorted((READ_BY.keys() | NOT_FUZZED.keys()) - found) == [], "no longer there"


def test_readers_are_those_of_the_fuzzers() -> None:
    """All of fuzz.cpp run, and the table names no others."""
    known = set(re.findall(r'^ +\{+"(\w+)", \{"', FUZZ.read_text(), re.MULTILINE))
    assert known == {*READERS}
    named = {name for readers in READ_BY.values() for name in readers}
    assert named == known | {f"ckks {name}" for name in FILES}


def test_a_new_reader_is_found() -> None:
    """In each of the ways in which somebody may write one."""
    for body in (
        "std::ifstream file(path);",
        "const Descriptor file(::open(path.c_str(), O_RDONLY));",
        "return TensorFile(path).fact(name);",
        "const TensorFile file{PlainFile(path)};",
        "return parse_json(text).at(name);",
        "return std::stoul(header);",
        "::pread(file.number(), text.data(), size, 0);",
    ):
        text = (
            f"namespace atlasc {{\n\nint Taker::taken(const std::string& path) {{\n    {body}\n}}\n"
        )
        assert openings(text, header=False) == {"Taker::taken"}, body
    assert openings("Message message_of(const Bytes& bytes) {\n}\n", header=False) == {"message_of"}
    assert openings("    int at() {\n        return std::stoi(text);\n    }\n", header=True) == {
        "at"
    }
    assert openings("int sum(const std::vector<int>& of) {\n    return 0;\n}\n", False) == set()
