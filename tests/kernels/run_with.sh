#!/bin/bash
# Runs a program: run_with.sh [NAME=VALUE...] PROGRAM [ARGS]
exec env "$@"
