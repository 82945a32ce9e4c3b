"""A further turn of a session: which tokens go on, and which have to be computed anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from atlasc.bundle.folder import Bundle
from atlasc.generation.budget import DEFAULT_STEPS, Budget
from atlasc.generation.prompt import Prompt, added_ids, conversation_ids, is_conversation
from atlasc.generation.record import Record
from atlasc.generation.steps import TextBundles, following
from atlasc.ir.errors import AtlasError, counted
from atlasc.loading.texts.chat import ChatMessage, messages_of


class _Turn(NamedTuple):
    """A text with a further turn.

    Attributes:
        ids: its tokens up to the next answer, those of the public prefix included.
        left: tokens after the public prefix that have left the keys and values.
        messages: the conversation; empty if the text is none.
        note: what left, in words; empty if nothing did.
    """

    ids: list[int]
    left: int
    messages: list[ChatMessage]
    note: str = ""


def common(some: Sequence[object], others: Sequence[object]) -> int:
    """The number of tokens, or of characters, with which both begin."""
    pairs = enumerate(zip(some, others, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(some), len(others)))


def anew(programs: TextBundles, public: int, record: Record) -> Record:
    """The record of a session that takes the place of another one: the server has no token of it
    but the public prefix.
    """
    held = len(record.held(public))
    return record.model_copy(
        update={
            "session": following(record.session), "done": public, "first": held,
            "prefill": programs.prefill_pays(held),
        }
    )  # fmt: skip


def further(
    programs: TextBundles, record: Record, end: int, prompt: Prompt, budget: Budget,
    steps: int | None,
) -> tuple[Record, str, bool]:  # fmt: skip
    """The record of a session with a prompt behind its last answer.

    Args:
        programs: the programs of the text.
        record: the session.
        end: tokens up to the end of the last answer.
        prompt: messages for a conversation; else a text or token ids.
        budget: tokens of a text.
        steps: tokens that are asked for after the prompt, if the user says how many.

    Returns:
        the record; what it changes in earlier turns, in words; and whether this follows from the
        tokens of an answer.

    Raises:
        AtlasError: the prompt is of another kind than the session, or empty; there is no room for
            it, even if all that may leave left.
    """
    wanted = steps or budget.settings.length(0) or DEFAULT_STEPS
    turn = _next_turn(programs.step, record, end, prompt, budget, wanted)
    length = budget.length(len(turn.ids) - turn.left, steps, record.steps is None)
    new = record.model_copy(
        update={
            "ids": turn.ids, "left": turn.left, "messages": turn.messages,
            "prompt": len(turn.ids), "first": record.begun,
            "steps": None if record.steps is None else length,
        }
    )  # fmt: skip
    had, held = record.held(budget.public)[: record.done], new.held(budget.public)
    same = common(had, held)
    if same == len(had) and not programs.prefill_pays(len(held) - same):
        return new, turn.note, False
    why = turn.note
    if same == len(had):
        why = "that is predicted to take less time"
    elif not why:
        why = (
            f"of the {len(had)} tokens that the server has, the first {same} are those of the text "
            "as it is now"
        )
    note = f"all {counted(len(held), 'token', 'tokens')} are computed anew: {why}"
    return anew(programs, budget.public, new), note, same < len(had)


def _next_turn(
    step: Bundle, record: Record, answered: int, prompt: Prompt, budget: Budget, steps: int
) -> _Turn:
    if is_conversation(prompt) != bool(record.messages):
        kind = "a conversation" if record.messages else "a text"
        raise AtlasError(
            f"the session is {kind}, and this turn is not",
            remedy="give a message (--chat)"
            if record.messages
            else "leave --chat out, or begin a new session with it",
        )
    if not is_conversation(prompt):
        return _text_turn(record, answered, added_ids(step, prompt), budget)  # type: ignore[arg-type]
    said = record.ids[record.prompt : answered]
    tokenizer = step.model.tokenizer
    assert tokenizer is not None, "it wrote the conversation"
    text = tokenizer.decode(said, skip_special_tokens=True)
    answer = ChatMessage(role="assistant", content=text)
    return _chat_turn(step, record, [*record.messages, answer, *messages_of(prompt)], budget, steps)


def _text_turn(record: Record, answered: int, more: list[int], budget: Budget) -> _Turn:
    """The turn of a text. The oldest tokens leave if it does not fit."""
    if not more:
        raise AtlasError("the turn has no token", remedy="write something")
    ids, left, note = [*record.ids[:answered], *more], record.left, ""
    if budget.window is not None:
        _require_room("the turn has", len(more), budget.window - budget.public, budget.public)
        if len(ids) - left > budget.room:
            left = len(ids) - budget.window
            note = f"the oldest {counted(left - record.left, 'token', 'tokens')} leave"
    return _Turn(ids, left, [], note)


def _chat_turn(
    step: Bundle, record: Record, messages: list[ChatMessage], budget: Budget, steps: int
) -> _Turn:
    """The turn of a conversation. Whole messages leave, the oldest first, up to one of a user; the
    first one stays if it is of the system.
    """
    public, whole = record.ids[: budget.public], messages
    ids = conversation_ids(step, messages)
    if budget.window is not None and budget.public + len(ids) + steps - 1 > budget.room:
        kept = messages[:1] if messages[0].role == "system" else []
        later = range(len(kept) + 1, len(messages))
        for start in (at for at in later if whole[at].role == "user"):
            messages = [*kept, *whole[start:]]
            ids = conversation_ids(step, messages)
            if budget.public + len(ids) <= budget.window:
                break
        what, needed = "the last message and its answer have", len(ids) + steps - 1
        _require_room(what, needed, budget.room - budget.public, budget.public)
    left = len(whole) - len(messages)
    note = f"the oldest {counted(left, 'message leaves', 'messages leave')}" if left else ""
    return _Turn([*public, *ids], 0, messages, note)


def _require_room(what: str, tokens: int, room: int, public: int) -> None:
    if tokens > room:
        prefix = f" beside the public prefix of {public}" if public else ""
        raise AtlasError(
            f"{what} {counted(tokens, 'token', 'tokens')}",
            why=f"there is room for {room}{prefix}, even if all earlier ones leave",
            remedy="shorten it, ask for fewer tokens, or compile with a larger --sequence-length",
        )
