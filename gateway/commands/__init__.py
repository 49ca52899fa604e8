"""Commands of ``packhorse`` that start no gateway. Each module has ``add_arguments(parser)`` and ``run(args) -> int``."""
