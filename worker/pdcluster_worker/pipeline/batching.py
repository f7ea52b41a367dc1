"""Which prompt tokens go into the next forward pass. Pure integers.

The oldest unfinished prompt goes first; a prompt longer than what is left of the chunk budget is
cut.
"""

from collections.abc import Sequence


def split_chunk(remaining: Sequence[int], *, budget: int) -> list[int]:
    """Tokens of each prompt in the next pass, given the tokens each still needs, oldest first.

    The sum is at most ``budget``; entries after the first cut one are 0.
    """
    shares: list[int] = []
    for tokens in remaining:
        share = min(tokens, budget)
        shares.append(share)
        budget -= share
    return shares
