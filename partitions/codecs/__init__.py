"""
Items and verbs as DynamoDB writes them: attribute values, keys, and condition and update expressions.

Pure: knows no client. `values` is about single values, `keys` about where an item lies, `items` about whole items,
`writes` and `drafts` about one conditional request, and `encoding` turns a verb into such requests.
"""
