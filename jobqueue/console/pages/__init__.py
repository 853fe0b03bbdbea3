"""The pages: a file each, whose `show` asks what is on the screen, and renders it. `site` says which path is whose."""
