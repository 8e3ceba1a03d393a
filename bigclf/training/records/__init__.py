"""What a run writes down: ``run_directory``, held by one process (``lease``), its fields checked."""
