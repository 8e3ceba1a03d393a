"""What a person asks for: ``options.py`` declares every option once."""
