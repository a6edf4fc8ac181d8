"""python -m countveil"""

from countveil.cli import main

main()
