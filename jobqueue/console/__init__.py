"""The console: a web site for people, which sends commands to a service over HTTP and shows the answers.

It is a client like any other: it uses `POST /command`, with the token of the person who has signed in. It has no
Redis, no rights and no JSON API of its own; whatever a token may not do, the service refuses. `site` has the routes and
headers, `guard` decides which requests are answered at all, `sessions` keeps track of who has signed in, and
`questions` asks each question at most once a second, however many people look. Each file in `pages` reads and renders a
page; `actions` has a function for each POST. Pages work without JavaScript: links are links, forms are forms.
"""
