"""LinearSystem against a dense null-space method."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from atlasc.polynomials.linear_system import LinearSystem

UNKNOWNS = "abcdefg"
rows = st.dictionaries(
    st.sampled_from(UNKNOWNS), st.sampled_from([-2.0, -1.0, 1.0, 2.0, 0.5]), min_size=1, max_size=3
)
equations = st.lists(st.tuples(rows, st.integers(-3, 3).map(float)), max_size=8)
values = st.integers(-40, 40).map(lambda n: n / 8)
wishes = st.fixed_dictionaries(dict.fromkeys(UNKNOWNS, values))


def dense(row: dict[str, float]) -> np.ndarray:
    return np.array([row.get(name, 0.0) for name in UNKNOWNS])


def consistent(accepted: list[tuple[dict[str, float], float]]) -> bool:
    matrix = np.array([dense(row) for row, _ in accepted])
    target = np.array([constant for _, constant in accepted])
    solution = np.linalg.lstsq(matrix, target, rcond=None)[0]
    return bool(np.allclose(matrix @ solution, target, atol=1e-7))


@given(equations, wishes)
def test_against_least_squares_with_constraints(
    system_of: list[tuple[dict[str, float], float]], wished: dict[str, float]
) -> None:
    """An equation is refused exactly when it contradicts; the solution is the nearest one.

    The oracle writes all solutions as particular + N·z with N a basis of the null space, and
    solves for z by ordinary least squares.
    """
    system: LinearSystem[str] = LinearSystem()
    accepted: list[tuple[dict[str, float], float]] = []
    for row, constant in system_of:
        fits = system.add(row, constant)
        assert fits == consistent([*accepted, (row, constant)])
        if fits:
            accepted.append((row, constant))
    solution = system.solve(wished)
    result = np.array([solution[name] for name in UNKNOWNS])
    target = np.array([wished[name] for name in UNKNOWNS])
    if not accepted:
        np.testing.assert_allclose(result, target, atol=1e-9)
        return
    matrix = np.array([dense(row) for row, _ in accepted])
    constants = np.array([constant for _, constant in accepted])
    np.testing.assert_allclose(matrix @ result, constants, atol=1e-8)
    particular = np.linalg.lstsq(matrix, constants, rcond=None)[0]
    _, singular, basis = np.linalg.svd(matrix)
    null = basis[int((singular > 1e-9).sum()) :].T
    nearest = particular + null @ (null.T @ (target - particular))
    np.testing.assert_allclose(result, nearest, atol=1e-7)


@given(equations)
def test_unknowns_without_a_wish_take_the_least_norm(
    system_of: list[tuple[dict[str, float], float]],
) -> None:
    """Nothing to wish for is no error, and the equations hold."""
    system: LinearSystem[str] = LinearSystem()
    accepted = [(row, constant) for row, constant in system_of if system.add(row, constant)]
    solution = system.solve({})
    for row, constant in accepted:
        assert abs(sum(c * solution[name] for name, c in row.items()) - constant) < 1e-8


def test_a_refused_equation_changes_nothing() -> None:
    system: LinearSystem[str] = LinearSystem()
    assert system.add({"a": 1.0, "b": -1.0}, 0.0)
    assert system.add({"b": 1.0}, 2.0)
    assert not system.add({"a": 2.0}, 5.0)
    assert system.add({"a": 2.0}, 4.0)
    assert system.solve({"a": 9.0, "b": 9.0, "c": 1.5}) == {"a": 2.0, "b": 2.0, "c": 1.5}


def test_a_long_chain_is_quick() -> None:
    """As many unknowns as a large model has values; wishes that pull in different directions."""
    system: LinearSystem[int] = LinearSystem()
    for n in range(3000):
        system.add({n: 1.0, n + 1: -1.0}, 0.5)
    solution = system.solve({0: 0.0, 3000: 0.0})
    assert abs(solution[0] - 750.0) < 1e-6
    assert abs(solution[0] - solution[3000] - 1500.0) < 1e-6
