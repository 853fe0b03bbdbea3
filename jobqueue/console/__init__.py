"""The console: a web site for people, which asks a service over HTTP and shows what it answers.

It is a client like any other: `POST /command`, with the token of the person in front of it. It has no Redis, no rights
of its own and no JSON of its own; whatever a token may not do, the service refuses. `site` has the routes and headers,
`guard` decides which requests are answered at all, `sessions` keeps who has signed in, and `questions` asks each
question at most once a second, however many people look. A file of `pages` reads and renders one page; `actions` has a
function for each POST. Pages work without JavaScript: links are links, forms are forms.
"""
