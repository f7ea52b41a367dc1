"""Set-up tells uv what pip's configuration says."""

from scripts.bootstrap import pip_options, uv_environment

LISTING = r"""
:env:.cert='/etc/certs/all.pem'
:env:.find-links='dist wheels'
global.cert='/etc/other.pem'
global.index-url='https://mirror.example/pypi'
install.extra-index-url='\nhttps://a.example\nhttps://b.example'
freeze.timeout='1'
"""


def test_environment_wins_over_files() -> None:
    assert pip_options(LISTING)["cert"] == "/etc/certs/all.pem"


def test_options_of_other_commands_are_not_ours() -> None:
    assert "timeout" not in pip_options(LISTING)


def test_uv_is_told_the_same() -> None:
    assert uv_environment(LISTING, present={}) == {
        "SSL_CERT_FILE": "/etc/certs/all.pem",
        "UV_FIND_LINKS": "dist,wheels",
        "UV_DEFAULT_INDEX": "https://mirror.example/pypi",
        "UV_INDEX": "https://a.example https://b.example",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


def test_what_the_user_told_uv_stays() -> None:
    told = uv_environment(LISTING, present={"UV_DEFAULT_INDEX": "https://mine.example"})
    assert "UV_DEFAULT_INDEX" not in told


def test_no_configuration_says_nothing() -> None:
    assert uv_environment("", present={}) == {}
