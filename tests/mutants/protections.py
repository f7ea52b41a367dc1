"""Protections of the hand-off, each with an edit that removes it.

The text that an edit replaces must occur exactly once in its file, so that an edit which no longer
fits the code is noticed.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """One protection removed. ``file`` is below the worker's package."""

    name: str
    file: str
    old: str
    new: str


MUTANTS = (
    # ------------------------------------------------------------------- pages of decode
    Mutant(
        "pages are free without the writer's acknowledgement",
        "pipeline/decode.py",
        "written = arrival is not None and not arrival.quiet",
        "written = False",
    ),
    Mutant(
        "pages are free after a while",
        "pipeline/decode_peers.py",
        "                self._peers.say(arrival.instance, arrival.abort(request.room))\n"
        "                if request.hop",
        "                arrival.quiet = True\n"
        "                self._settle(request, now)\n"
        "                return\n"
        "                if request.hop",
    ),
    Mutant(
        "any generation of a room will do",
        "pipeline/decode_peers.py",
        "if (arrival.instance, arrival.generation) != (sender, generation):",
        "if arrival.instance != sender:",
    ),
    Mutant(
        "any writer will do",
        "pipeline/decode_peers.py",
        "if (arrival.instance, arrival.generation) != (sender, generation):",
        "if arrival.generation != generation:",
    ),
    Mutant(
        "a refusal counts as quiet though writes are under way",
        "pipeline/decode_peers.py",
        "arrival.quiet = arrival.quiet or refused.quiescent",
        "arrival.quiet = True",
    ),
    Mutant(
        "a silent writer counts as dead",
        "pipeline/decode_peers.py",
        "if change is Change.GONE and arrival is not None and not arrival.quiet:",
        "if arrival is not None and not arrival.quiet:",
    ),
    Mutant(
        "an acknowledgement counts before it is awaited",
        "pipeline/decode_peers.py",
        "if mine is not None and mine[1].armed:",
        "if mine is not None:",
    ),
    Mutant(
        "failed pages are not counted as quarantined",
        "pipeline/decode_table.py",
        "(Action.ISOLATE, Action.TELL, Action.ANSWER_FAILURE)",
        "(Action.TELL, Action.ANSWER_FAILURE)",
    ),
    Mutant(
        "pages are released while a pass still reads them",
        "pipeline/decode_table.py",
        "(Stage.RUNNING, Event.FAILED): Row(Stage.DEFERRED, (Action.ANSWER_FAILURE,)),",
        "(Stage.RUNNING, Event.FAILED): Row(None, (Action.RELEASE, Action.ANSWER_FAILURE)),",
    ),
    Mutant(
        "the host copy of a retracted request stays",
        "pipeline/decode_table.py",
        "Row(None, (Action.DROP, Action.ANSWER_FAILURE))",
        "Row(None, (Action.ANSWER_FAILURE,))",
    ),
    # ------------------------------------------------------------------ what has arrived
    Mutant(
        "the last chunk stands for all",
        "pipeline/receiving.py",
        "return self.row and self.total is not None and len(self.chunks) == self.total",
        "return self.row and self.total is not None",
    ),
    Mutant(
        "the row is not waited for",
        "pipeline/receiving.py",
        "return self.row and self.total is not None and len(self.chunks) == self.total",
        "return self.total is not None and len(self.chunks) == self.total",
    ),
    Mutant(
        "a row may name another room",
        "pipeline/decode.py",
        "if (content.room, content.generation) != (request.room, arrival.generation):",
        "if False:",
    ),
    Mutant(
        "the number of pages is not compared",
        "pipeline/receiving.py",
        "if notice.pages != self.pages:",
        "if False:",
    ),
    Mutant(
        "signs of life extend a wait for ever",
        "pipeline/decode_peers.py",
        "request.deadline = min(extended, arrival.latest)",
        "request.deadline = extended",
    ),
    # ------------------------------------------------------------------- pages of prefill
    Mutant(
        "pages are free while writes read them",
        "pipeline/prefill.py",
        "if request.computing or (hand is not None and hand.open_writes):",
        "if request.computing:",
    ),
    Mutant(
        "pages are free while a pass writes them",
        "pipeline/prefill.py",
        "if request.computing or (hand is not None and hand.open_writes):",
        "if hand is not None and hand.open_writes:",
    ),
    Mutant(
        "a failed write counts as settled",
        "pipeline/prefill.py",
        "        request = self._by_key.get(key)\n"
        "        if request is not None:\n"
        "            self._fail(request, error, now)",
        "        request = self._by_key.get(key)\n"
        "        if request is not None:\n"
        "            self._hands[key].open_writes -= 1\n"
        "            self._fail(request, error, now)\n"
        "            self._settle(request, now)",
    ),
    Mutant(
        "a page is sent before it is whole",
        "pipeline/sending.py",
        "whole = request.computed // self._settings.page_tokens",
        "whole = self._settings.pages_for(request.computed)",
    ),
    Mutant(
        "an abort is not acknowledged",
        "pipeline/prefill.py",
        "            self._legs.concluded.add(*key)\n"
        "            self._sender.ack(sender, (abort.room, abort.generation))",
        "            self._legs.concluded.add(*key)",
    ),
    Mutant(
        "a deferred hand-off is not acknowledged",
        "pipeline/prefill_table.py",
        "(Stage.DEFERRED, Event.QUIET): Row(None, (Action.ACK, Action.RELEASE)),",
        "(Stage.DEFERRED, Event.QUIET): Row(None, (Action.RELEASE,)),",
    ),
    # -------------------------------------------------------------------------------- rooms
    Mutant(
        "a room may be used twice at once",
        "pipeline/base.py",
        "if request.room and request.room in self._by_room:",
        "if False:",
    ),
    Mutant(
        "what is concluded is acted upon again",
        "pipeline/prefill.py",
        "if (sender, publish.generation) in self._legs.concluded:",
        "if False:",
    ),
    Mutant(
        "a second decode takes over a published room",
        "pipeline/legs.py",
        "if first is not None and first[0] != sender:",
        "if False:",
    ),
    Mutant(
        "legs that disagree about the prompt go on",
        "pipeline/prefill.py",
        "if error := hand.contradiction(request, expected):",
        "if (error := hand.contradiction(request, expected)) and False:",
    ),
    Mutant(
        "prompts of the same length are taken for the same",
        "pipeline/sending.py",
        "            and self.publish.digest == request.digest\n",
        "",
    ),
    Mutant(
        "the other leg is not told of a refusal",
        "pipeline/contacts.py",
        "        entry.tells.append(message)\n",
        "",
    ),
    Mutant(
        "pages whose request never comes are not refused",
        "pipeline/prefill.py",
        "            self._decline(orphan, late)\n",
        "            del late\n",
    ),
    Mutant(
        "a client that left one leg ends the other's answer",
        "core/errors.py",
        "return PeerRefused(message) if isinstance(error, ClientGone) else error",
        "return error",
    ),
    # -------------------------------------------------------------------------------- peers
    Mutant(
        "a frame for the former process is acted upon",
        "wire/peer.py",
        "if envelope.receiver and envelope.receiver != self._instance:",
        "if False:",
    ),
    Mutant(
        "any new process proves all others dead",
        "pipeline/peers.py",
        'if other.intro.pod_uid == pod_uid != "" and other.instance != instance:',
        "if other.instance != instance:",
    ),
    Mutant(
        "peers that do not fit exchange pages",
        "pipeline/peers.py",
        "            if ours != theirs:",
        "            if False:",
    ),
    Mutant(
        "a handshake is complete before its writes are",
        "pipeline/peers.py",
        "return self.joined and self.wrote and self.seen",
        "return self.joined",
    ),
    Mutant(
        "writes from before a break make a peer ready",
        "pipeline/peers.py",
        "return self.joined and self.wrote and self.seen",
        "return self.wrote and self.seen",
    ),
    Mutant(
        "a handshake that hangs is not repeated",
        "pipeline/peers.py",
        "            self._hurry(peer, now)\n",
        "",
    ),
    Mutant(
        "our own pause counts as the silence of others",
        "pipeline/peers.py",
        "if gap > limits.heartbeat_timeout_s / 2:",
        "if False:",
    ),
    # ------------------------------------------------------------------- answers and limits
    Mutant(
        "a request may be answered twice",
        "pipeline/base.py",
        "        if request.answered:\n            return\n        request.answered = True\n"
        "        request.outcome = outcome_of(error)",
        "        request.answered = True\n        request.outcome = outcome_of(error)",
    ),
    Mutant(
        "waiting has no limit",
        "pipeline/decode.py",
        "        if stage in (Stage.PREALLOC, Stage.COMMITTED, Stage.RETRACTED):\n"
        "            return limits.queue_timeout_s\n",
        "",
    ),
    Mutant(
        "live requests have no limit",
        "pipeline/base.py",
        "if len(self._by_key) >= limits.queued_requests_max:",
        "if False:",
    ),
    Mutant(
        "the address book has no limit",
        "pipeline/contacts.py",
        "if len(self._entries) >= self._entries_max and not self._evict():",
        "if False:",
    ),
    Mutant(
        "a retracted request loses its last page",
        "pipeline/batch_pipeline.py",
        "filled = self.settings.pages_for(request.computed)",
        "filled = self.settings.pages_for(request.computed) - 1",
    ),
    Mutant(
        "bad frames end the loop",
        "wire/peer.py",
        "        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:",
        "        except RecursionError as error:",
    ),
    Mutant(
        "frames of anybody are taken",
        "wire/peer.py",
        "if not hmac.compare_digest(tag, self._tag(payload)):",
        "if False:",
    ),
)
