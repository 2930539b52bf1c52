"""How `make setup` builds the environment: standard library only, since nothing is there yet.

`choose` decides (pure; tests/scripts/test_setup_env.py), `machine` and `venv` look and act, `cli`
puts them in order.
"""
