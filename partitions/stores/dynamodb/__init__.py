"""
A store in one DynamoDB table. Imported by name only, because it loads the SDK of AWS.
"""
