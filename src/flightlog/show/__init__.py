"""Results as text, Markdown, HTML, figures and pictures. Nothing here reads runs or prints."""
