"""docs/routes.md: every route of the service with its members, from its OpenAPI document."""

from __future__ import annotations

from typing import Any

HEAD = """\
# HTTP routes

Generated from the OpenAPI document of the service by `python -m tests.test_docs`. A running service shows the same at
`/docs` and `/openapi.json`; [HTTP](http.md) explains keys, charges, errors and deployment. Requests and responses are
JSON. Members that are not listed are refused in requests; responses may get new members.
"""


def render_page() -> str:
    """The page, from the application's document."""
    from countveil.service.app import Settings, create_app

    document = create_app(Settings()).openapi()
    schemas = document["components"]["schemas"]
    parts = [HEAD]
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            words = " ".join(route.get("description", "").split())
            parts.append(f"## {method.upper()} {path}\n\n{words}\n")
            parts += [
                f"Sends [`{name}`](#{name.lower()}).\n" for name in list_schemas(route.get("requestBody", {}), schemas)
            ]
            answer = list_schemas(route["responses"]["200"], schemas)
            statuses = ", ".join(sorted(status for status in route["responses"] if status != "200"))
            parts += [f"Gives {', '.join(f'[`{name}`](#{name.lower()})' for name in answer)}.\n"] if answer else []
            parts.append(f"Problems: {statuses}.\n")
    for name, schema in schemas.items():
        rows = [
            f"| `{member}` | {describe_type(each)} | {describe_default(member, each, schema)} | {one_line(each)} |"
            for member, each in schema.get("properties", {}).items()
        ]
        table = "| member | type | default | meaning |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
        parts.append(f"## {name}\n\n{one_line(schema)}\n\n{table}".replace("\n\n\n", "\n"))
    return "\n".join(parts)


def list_schemas(part: dict[str, Any], schemas: dict[str, Any]) -> list[str]:
    """The names of the schemas of a body."""
    body = part.get("content", {}).get("application/json", {}).get("schema", {})
    names = [each.get("$ref", "").rpartition("/")[2] for each in (body, *body.get("anyOf", ()))]
    return [name for name in names if name in schemas]


def describe_type(member: dict[str, Any]) -> str:
    """The type of a member in a few words."""
    if "$ref" in member:
        name = member["$ref"].rpartition("/")[2]
        return f"[`{name}`](#{name.lower()})"
    if "anyOf" in member:
        return " or ".join(dict.fromkeys(describe_type(each) for each in member["anyOf"]))
    if "enum" in member:
        return ", ".join(f"`{value}`" for value in member["enum"])
    if member.get("type") == "array":
        return f"list of {describe_type(member['items'])}" if member.get("items") else "list"
    if isinstance(member.get("additionalProperties"), dict):
        return f"{describe_type(member['additionalProperties'])} by name"
    return str(member.get("type", member.get("const", "any value")))


def describe_default(name: str, member: dict[str, Any], schema: dict[str, Any]) -> str:
    if name in schema.get("required", ()):
        return "required"
    return f"`{member['default']}`" if member.get("default") not in (None, "") else ""


def one_line(part: dict[str, Any]) -> str:
    return " ".join(str(part.get("description", "")).split()).replace("|", "\\|")
