"""What a wait returns and how it waits."""
