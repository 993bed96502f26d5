"""The commands. A command is: parse → call → show; what is heavy is imported inside."""
