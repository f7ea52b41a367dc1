"""A scheduler process that also writes down digests of handed-over pages, or spoils one.

Run as a script by `pair`. PDCLUSTER_RUN_DIR/hook.json: {"digests": FILE, "spoil": true}.
"""

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pdcluster_worker.core import settings as settings_module
from pdcluster_worker.pipeline.decode import DecodePipeline
from pdcluster_worker.pipeline.request import Request
from pdcluster_worker.pipeline.sending import Sender
from pdcluster_worker.roles import __main__ as program
from pdcluster_worker.roles import build


def install(hook: dict[str, Any]) -> None:
    """Wrap the two moments: prefill's last send, decode's commit."""
    made: dict[str, Any] = {}
    original_build = build.build_scheduler

    def building(*args: Any, **kwargs: Any) -> build.Scheduler:
        scheduler = original_build(*args, **kwargs)
        made["scheduler"] = scheduler
        return scheduler

    vars(program)["build_scheduler"] = building

    def note(request: Request) -> None:
        assert request.lease is not None
        rows = made["scheduler"].pool.tensor[request.lease.pages.astype(np.int64)]
        # Rows beyond the prompt in its last page are nobody's: they are not compared.
        whole = len(request.prompt) // rows.shape[4]
        rest = len(request.prompt) % rows.shape[4]
        parts = [rows[:whole].contiguous(), rows[whole:, :, :, :, :rest].contiguous()]
        digest = hashlib.blake2b(b"".join(p.numpy().tobytes() for p in parts)).hexdigest()
        with Path(hook["digests"]).open("a") as file:
            file.write(json.dumps({"room": request.room, "kv": digest}) + "\n")

    def wrap(owner: type, name: str, before: Callable[[Request], None]) -> None:
        original = vars(owner)[name]

        def wrapped(self: object, request: Request, *args: Any, **kwargs: Any) -> Any:
            before(request)
            return original(self, request, *args, **kwargs)

        setattr(owner, name, wrapped)

    def arrived(request: Request) -> None:
        if hook.get("spoil") and request.lease is not None:
            made["scheduler"].pool.tensor[int(request.lease.pages[0])] = 0
        note(request)

    wrap(Sender, "last", note)
    wrap(DecodePipeline, "_commit", arrived)


if __name__ == "__main__":
    install(json.loads((settings_module.load().run_dir / "hook.json").read_text()))
    sys.exit(program.main())
