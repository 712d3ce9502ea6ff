"""Chapter F: The learning rate and its schedules."""
