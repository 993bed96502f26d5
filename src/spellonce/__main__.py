"""`python -m spellonce`"""

from spellonce.cli import main

if __name__ == "__main__":
    main()
