"""The pages, one file each: `show` asks the service for the content and renders it. `site` maps paths to pages."""
