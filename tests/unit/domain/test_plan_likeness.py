"""Which plans are another approach, and which the same in other words?"""

import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.domain.plan_likeness import PLAN_MAX_CHARS, compared, is_different
from jobs.domain.turn_plan import INSTRUCTION_MAX_CHARS, TASKS_MAX, Plan, Task

pytestmark = pytest.mark.req("C12")

WORDY = "Read the revenue of the third quarter from the warehouse and list it by month"
TEXTS = st.text(max_size=60)
PLANS = st.lists(st.builds(Task, st.sampled_from(["a", "b"]), TEXTS), min_size=1, max_size=4).map(
    lambda tasks: Plan(tuple(tasks))
)


def plan(*instructions: str, agent: str = "a") -> Plan:
    return Plan(tuple(Task(agent, instruction) for instruction in instructions))


@pytest.mark.parametrize(
    ("tried", "new"),
    [
        (WORDY, WORDY),
        (WORDY, f"{WORDY}."),
        (WORDY, WORDY.upper()),
        (WORDY, WORDY.replace(" ", "\n  ")),
        (WORDY, WORDY.replace("list", "lists")),
        (WORDY, WORDY.replace(" and ", ", and - ")),
        ("ok", "OK!"),
        ("a", "A"),
        ("", ""),
        ("", " \n"),
        ("!?", "..."),
        ("Straße", "STRASSE"),
        ("查询仓库中的季度收入", "查询仓库中的季度收入。"),
        ("ＡＢＣ１２３", "abc123"),
        ("e\u0301tude", "\u00e9tude"),
    ],
)
def test_the_same_in_other_clothes_is_no_other_plan(tried: str, new: str) -> None:
    assert not is_different(plan(new), [plan(tried)])


@pytest.mark.parametrize(
    ("tried", "new"),
    [
        (WORDY, "Ask the finance department for last year's spreadsheet"),
        (WORDY, f"{WORDY}, then ask finance whether the totals are right and correct them"),
        (WORDY, WORDY.replace("warehouse", "ledger").replace("by month", "for each country")),
        (WORDY, ""),
        ("", "a"),
        ("a", "b"),
        ("go", "no"),
        ("read 1", "read 2"),
        ("use C++", "use C#"),
        ("👍", "👎"),
        ("查询仓库中的季度收入", "向财务部门索取表格"),
        ("查询仓库", "查询文件"),
    ],
)
def test_other_words_are_another_plan(tried: str, new: str) -> None:
    assert is_different(plan(new), [plan(tried)])


def test_another_agent_with_the_same_words_is_another_plan() -> None:
    assert is_different(plan(WORDY, agent="b"), [plan(WORDY, agent="a")])


def test_agents_in_another_order_are_another_plan() -> None:
    tried = Plan((Task("a", WORDY), Task("b", "Draw it")))

    assert is_different(Plan((Task("b", WORDY), Task("a", "Draw it"))), [tried])


def test_one_agents_own_tasks_in_another_order_are_no_other_plan() -> None:
    assert not is_different(plan("Draw a chart", WORDY), [plan(WORDY, "Draw a chart")])


def test_a_task_that_is_split_in_two_is_another_plan() -> None:
    first, second = WORDY.split(" and ")

    assert is_different(plan(first, second), [plan(WORDY)])
    assert is_different(plan(WORDY), [plan(first, second)])


def test_a_plan_has_to_differ_from_every_plan_that_was_tried() -> None:
    others = [plan("Ask finance"), plan("Guess it")]

    assert is_different(plan(WORDY), others)
    assert not is_different(plan(WORDY), [*others, plan(WORDY)])
    assert not is_different(plan(WORDY), [plan(WORDY), *others])


def test_from_no_plan_at_all_any_is_different() -> None:
    assert is_different(plan(""), [])


def test_from_exactly_four_fifths_on_two_plans_are_alike() -> None:
    # A text of n characters has n trigrams with the spaces around it: 4 of 5, then 3 of 4.
    assert not is_different(plan("wxyz", ""), [plan("wxyz", "p")])
    assert is_different(plan("wxy", ""), [plan("wxy", "p")])


@given(PLANS, PLANS)
def test_likeness_is_mutual_and_every_plan_is_like_itself(one: Plan, other: Plan) -> None:
    assert not is_different(one, [one])
    assert is_different(one, [other]) == is_different(other, [one])


@given(PLANS)
def test_a_plan_with_another_number_of_tasks_is_different(one: Plan) -> None:
    assert is_different(Plan((*one.tasks, Task("a", ""))), [one])


@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=30))
def test_no_text_raises(text: str) -> None:
    is_different(plan(text), [plan("a" + text)])


def large_plans(text: Callable[[int], str], tasks: int) -> list[Plan]:
    """As many plans as a chain can have, none the same, each as large as a planner's can be."""
    return [
        plan(*(f"{number} {text(number)}"[:INSTRUCTION_MAX_CHARS] for _ in range(tasks)))
        for number in range(11)
    ]


@pytest.mark.parametrize("tasks", [1, 2, TASKS_MAX])
@pytest.mark.parametrize(
    "text",
    [
        pytest.param(lambda _: "\ufdfa" * 20_000, id="one character that stands for 18"),
        pytest.param(lambda _: "a" + "\u0301\u0323" * 10_000, id="one letter with all marks"),
        pytest.param(
            lambda number: "".join(chr(0x4E00 + number * n % 20_000) for n in range(20_000)),
            id="no trigram twice",
        ),
    ],
)
def test_a_comparison_takes_a_second_or_two_whatever_the_plans(
    text: Callable[[int], str], tasks: int
) -> None:
    new, *tried = large_plans(text, tasks)
    began_s = time.process_time()
    is_different(new, tried)
    assert time.process_time() - began_s < 4


def test_of_many_instructions_each_ones_share_counts() -> None:
    long, other = "word " * 4_000, "other " * 4_000
    share = PLAN_MAX_CHARS // TASKS_MAX
    tried = plan(*[long] * TASKS_MAX)

    assert not is_different(plan(*[long[:share] + other] * TASKS_MAX), [tried])
    assert is_different(plan(*[other + long] * TASKS_MAX), [tried])
    assert is_different(plan(long[:share] + other), [plan(long)])


@given(PLANS, PLANS)
def test_what_is_kept_for_comparing_compares_the_same(one: Plan, other: Plan) -> None:
    assert is_different(one, [other]) == is_different(one, [compared(other)])


def test_of_what_is_kept_for_comparing_there_is_a_bound() -> None:
    for tasks in range(1, TASKS_MAX + 1):
        kept = compared(plan(*["x" * 1_000_000] * tasks))
        assert sum(len(task.instruction) for task in kept.tasks) <= PLAN_MAX_CHARS
