"""The ExecuTorch front end: the only place with torch."""
