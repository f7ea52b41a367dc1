"""The byte-level alphabet: how byte-level vocabularies spell each byte as one character."""


def byte_alphabet() -> list[str]:
    """The character that stands for each byte, by byte.

    Printable Latin-1 bytes stand for themselves, the others for U+0100 and up in order.
    """
    visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = [byte for byte in range(256) if byte not in visible]
    return [chr(b) if b in visible else chr(256 + hidden.index(b)) for b in range(256)]


def byte_of_character() -> dict[str, int]:
    """The inverse of `byte_alphabet`."""
    return {character: byte for byte, character in enumerate(byte_alphabet())}
