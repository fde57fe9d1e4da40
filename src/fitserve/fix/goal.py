"""What the goal asks of a command before it has been started once."""

from fitserve.diagnose.finding import Advice
from fitserve.facts.command import Launch
from fitserve.trial.choice import Bounds


def towards_goal(launch: Launch, bounds: Bounds) -> Advice | None:
    """The change without which no start of the command can serve the goal, whatever the memory; None where it might.

    The command says one thing and the goal another: to start it as it is would only show that.

    Args:
        launch: the command as it was given.
        bounds: the goal.
    """
    wanted = (
        ("max_model_len", bounds.goal_context, "the goal's context"),
        ("max_num_seqs", bounds.goal_concurrency, "the goal's requests at once"),
    )
    for flag, goal, words in wanted:
        now = launch.value(flag)
        if goal is not None and isinstance(now, int) and 0 < now < goal:
            return Advice(
                flag=flag,
                value_from=now,
                to=goal,
                direction="up",
                cost="free",
                why=f"{words}; the command allows less",
            )
    return None
