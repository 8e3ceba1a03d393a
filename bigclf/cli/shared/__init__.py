"""What the commands share: ``terminal`` (errors, hints), ``flags`` made of declared options, ``columns`` of tables."""
