"""Messages from chat platforms: inbox, commands, linking and delivery."""
