"""The simulator: real pipelines, pools, leases and frames over virtual time and a bad network.

`schedule` makes a bad day out of a seed, `run` lives through it in a `world` of `node`s whose
`network` obeys the day's faults, and every step is checked: nobody writes into pages that are not
his any more, nobody's answer has a wrong token, everything comes back in the end.
"""
