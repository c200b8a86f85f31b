_GAMMA = 0x9E3779B97F4A7C15


def _split_mix(z):
    """Return what SplitMix64 makes of its state (Steele, Lea and Flood 2014), which takes steps of _GAMMA."""
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
    z = (z ^ z >> 27) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
    return z ^ z >> 31
