"""Everything that can go wrong on the operator's side, drawn once.

OperatorError
├── ManifestError       the document is wrong; carries every problem      exit code 2
├── SettingError        an environment variable of ours is wrong            exit code 2
├── LocalRunError       this machine cannot run it
│   ├── AlreadyRunning  a cluster of that name runs here
│   ├── NotRunning      no cluster of that name runs here
│   ├── NoAddress       the loopback range is used up
│   └── UnsupportedPod  the manifest asks for what a local run does not have
├── RouterError         the router's control API refused or did not answer
└── AnswerError         a question to the model failed
"""

from typing import Any

from pdcluster_api.schema import Problem


class OperatorError(Exception):
    """Base of all; the message is for the person at the keyboard."""

    exit_code = 1


class ManifestError(OperatorError):
    """The document does not describe a PDCluster that can exist."""

    exit_code = 2

    def __init__(self, source: str, problems: tuple[Problem, ...]) -> None:
        lines = "\n".join(f"  {problem}" for problem in problems)
        one = len(problems) == 1
        super().__init__(
            f"{source}: {problems[0]}" if one else f"{source}: {len(problems)} problems\n{lines}"
        )
        self.source = source
        self.problems = problems


class SettingError(OperatorError):
    """An environment variable of ours is wrong."""

    exit_code = 2


class LocalRunError(OperatorError):
    """This machine cannot run it."""


class AlreadyRunning(LocalRunError):
    """A cluster of that name runs here."""


class NotRunning(LocalRunError):
    """No cluster of that name runs here."""


class NoAddress(LocalRunError):
    """The loopback range is used up."""


class UnsupportedPod(LocalRunError):
    """The manifest asks for what a local run does not have."""


class RouterError(OperatorError):
    """The router's control API refused or did not answer."""


class AnswerError(OperatorError):
    """A question to the model failed; carries what the server said about it, if it did."""

    def __init__(self, message: str, *, facts: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.facts = {"message": message} if facts is None else facts
