"""Whether a table of PostgreSQL may be counted, and how it is stored: one statement, run with every read of its rows.

Two things are refused: tables that are evaluated while they are counted (views, foreign tables, row security, casts),
and roles that can do more than read, by a grant to the role itself or to a role that it can become. What every role may
do by default is allowed: connect, use temporary tables, the catalogues and functions. Whether a table is refused
depends on the schema and the grants only.

The same statement identifies the server and describes how the table's rows are read: the numbers of its columns, the
values of columns that were added without writing rows, the labels of enumerations, and casts. If any of these changes,
the table counts as changed although no row was written.
"""

from __future__ import annotations

GRANT = "use a separate role: GRANT SELECT ON the table TO it, and nothing else"
MAY_NOT_LOOK = (
    "this role may not read the server's identity; "
    "GRANT EXECUTE ON FUNCTION pg_control_system(), pg_control_checkpoint() TO it"
)
_EXCESS = (
    "it is, or can become, a role with superuser, CREATEROLE, CREATEDB, REPLICATION or BYPASSRLS",
    "it is a member of a predefined role (pg_...)",
    "it owns an object, or can become a role that does",
    "it may write to a table or pass a grant on",
    "it may create objects in a schema or database (before PostgreSQL 15: REVOKE CREATE ON SCHEMA public FROM PUBLIC)",
    "it may use foreign servers or functions that others may not",
    "it may set server parameters that others may not (GRANT SET or ALTER SYSTEM ON PARAMETER)",
    "it may write large objects",
    "default privileges give it more than SELECT on future objects (ALTER DEFAULT PRIVILEGES)",
)
REFUSALS = (
    "this role may not read {table}; GRANT USAGE ON SCHEMA {schema} TO it and GRANT SELECT ON {table} TO it",
    "{table} is a view or a foreign table, or has one as a partition, which is evaluated while it is counted; "
    "make it a MATERIALIZED VIEW or a table",
    "{table} has row security, which is evaluated while it is counted; "
    "make a MATERIALIZED VIEW of the rows that may be counted",
    *(f"this role can do more than read {{table}}: {excess}; {GRANT}" for excess in _EXCESS),
    "the database of {table} has user-defined casts between built-in types (CREATE CAST), which are evaluated while "
    "the table is counted; DROP CAST, or keep the table in another database",
)
"""Error messages: reason number i of `_REASONS` has the message REFUSALS[i]."""

TREE = """
tree (oid, root) AS (
    SELECT c.oid, TRUE FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = %(schema)s AND c.relname = %(table)s
    UNION SELECT i.inhrelid, FALSE FROM pg_inherits AS i JOIN tree ON i.inhparent = tree.oid
)"""
"""SQL for a table with its partitions and the tables that inherit from it: a count of the table counts all of them."""
_SYSTEM = "(to_regnamespace('pg_catalog'), to_regnamespace('information_schema'))"
_PARAMETERS = "UNION ALL SELECT paracl, ARRAY[]::text[], FALSE, 9 FROM pg_parameter_acl"
_ROLE = f"""
reached AS (
    SELECT oid, left(rolname, 3) = 'pg_' AS predefined,
        rolsuper OR rolcreaterole OR rolcreatedb OR rolbypassrls OR rolreplication AS above
    FROM pg_roles
    WHERE pg_has_role(session_user, oid, 'MEMBER') OR pg_has_role(current_user, oid, 'MEMBER')
), acls AS (
    SELECT relacl AS acl, ARRAY['SELECT'] AS fine, relnamespace IN {_SYSTEM} AS system, 6 AS reason FROM pg_class
    UNION ALL
    SELECT a.attacl, ARRAY['SELECT'], c.relnamespace IN {_SYSTEM}, 6
    FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid WHERE a.attacl IS NOT NULL
    UNION ALL SELECT nspacl, ARRAY['USAGE'], FALSE, 7 FROM pg_namespace
    UNION ALL SELECT datacl, ARRAY['CONNECT', 'TEMPORARY'], FALSE, 7 FROM pg_database
    UNION ALL SELECT spcacl, ARRAY[]::text[], FALSE, 7 FROM pg_tablespace
    UNION ALL SELECT srvacl, ARRAY[]::text[], FALSE, 8 FROM pg_foreign_server
    UNION ALL SELECT fdwacl, ARRAY[]::text[], FALSE, 8 FROM pg_foreign_data_wrapper
    UNION ALL
    SELECT p.proacl, ARRAY[]::text[], TRUE, 8 FROM pg_proc AS p JOIN pg_language AS l ON l.oid = p.prolang
    WHERE p.proacl IS NOT NULL AND NOT EXISTS (SELECT FROM aclexplode(p.proacl) AS item WHERE item.grantee = 0)
        AND NOT (p.pronamespace = 'pg_catalog'::regnamespace
            AND p.proname IN ('pg_control_system', 'pg_control_checkpoint'))
        AND (p.pronamespace = 'pg_catalog'::regnamespace OR l.lanname IN ('c', 'internal') OR EXISTS (
            SELECT FROM pg_depend AS d
            WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'))
    {{parameters}}
    UNION ALL SELECT lomacl, ARRAY['SELECT'], FALSE, 10 FROM pg_largeobject_metadata
    UNION ALL
    SELECT defaclacl, CASE defaclobjtype WHEN 'f' THEN ARRAY['EXECUTE'] WHEN 'T' THEN ARRAY['USAGE']
        WHEN 'n' THEN ARRAY['USAGE'] ELSE ARRAY['SELECT'] END, FALSE, 11 FROM pg_default_acl
), granted AS (
    SELECT acls.reason
    FROM acls, aclexplode(acls.acl) AS item
    WHERE acls.acl IS NOT NULL
        AND (item.grantee IN (SELECT oid FROM reached) OR item.grantee = 0 AND NOT acls.system)
        AND (item.is_grantable OR item.privilege_type <> ALL (acls.fine))
)"""
"""SQL for the grants of the role and of all roles that it can become. A table's grants include those on its columns.

The grantee 0 is PUBLIC. A role is also refused if it may call certain functions that PUBLIC may not call: built-in
functions, those of extensions, and those in machine code. Such functions can do what SQL cannot, for example connect to
another server.
"""
_REASONS = """
refused (reason) AS (
    SELECT 0 FROM tree JOIN pg_class AS c ON c.oid = tree.oid
    WHERE tree.root AND NOT (has_schema_privilege(c.relnamespace, 'USAGE') AND has_table_privilege(c.oid, 'SELECT'))
    UNION ALL SELECT 1 FROM tree JOIN pg_class AS c ON c.oid = tree.oid WHERE c.relkind NOT IN ('r', 'p', 'm')
    UNION ALL SELECT 2 FROM tree WHERE tree.root AND row_security_active(tree.oid)
    UNION ALL SELECT 3 FROM reached WHERE above
    UNION ALL SELECT 4 FROM reached WHERE predefined
    UNION ALL
    SELECT 5 FROM pg_shdepend AS d LEFT JOIN pg_class AS c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
    WHERE d.refclassid = 'pg_authid'::regclass AND d.refobjid IN (SELECT oid FROM reached) AND d.deptype = 'o'
        AND d.dbid IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
        AND coalesce(c.relpersistence, 'p') <> 't'
    UNION ALL SELECT reason FROM granted
    UNION ALL
    SELECT 12 FROM pg_cast AS k JOIN pg_type AS s ON s.oid = k.castsource JOIN pg_type AS t ON t.oid = k.casttarget
    WHERE k.oid >= 16384
        AND 'pg_catalog'::regnamespace = s.typnamespace AND 'pg_catalog'::regnamespace = t.typnamespace
)"""
"""SQL for the reasons to refuse the table or the role.

User-defined objects have OIDs from 16384 on. Casts between built-in types matter because our statements use them.
Owners are looked up in pg_shdepend, the server's table of dependencies on roles.
"""
_KIND = "SELECT CAST(c.relkind AS text) FROM tree JOIN pg_class AS c ON c.oid = tree.oid WHERE tree.root"
_SERVER = """
SELECT concat(s.system_identifier, '/', CASE WHEN pg_is_in_recovery()
    THEN lpad(upper(to_hex(k.timeline_id)), 8, '0') ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END)
FROM pg_control_system() AS s, pg_control_checkpoint() AS k"""
"""SQL for the server's identifier and timeline. A server that is recovered to an earlier time starts a new timeline."""
_COLUMNS = """
SELECT json_agg(json_build_array(a.attname, t.typname, t.typtype, a.atttypmod,
    t.typnamespace = 'pg_catalog'::regnamespace, a.attgenerated = 'v', EXISTS (
        SELECT FROM pg_cast AS k JOIN pg_type AS target ON target.oid = k.casttarget
        WHERE k.oid >= 16384 AND k.castsource = a.atttypid AND k.castmethod = 'f'
            AND target.typnamespace = 'pg_catalog'::regnamespace
    )) ORDER BY a.attnum)
FROM tree JOIN pg_attribute AS a ON a.attrelid = tree.oid JOIN pg_type AS t ON t.oid = a.atttypid
WHERE tree.root AND a.attnum > 0 AND NOT a.attisdropped"""
"""SQL for the columns of the table: the arguments of `family_of`, and whether the type has a user-defined cast.

Only casts to built-in types count. Binary casts, which citext has, run no function and do not matter.
"""
_STORED = """
SELECT md5(string_agg(CAST(json_build_array(c.oid, c.relfilenode, a.attnum, a.attname, a.atttypid, a.atttypmod,
    CAST(a.attmissingval AS text),
    (SELECT json_agg(json_build_array(e.oid, e.enumlabel) ORDER BY e.oid) FROM pg_enum AS e
     WHERE e.enumtypid = a.atttypid)) AS text), ',' ORDER BY c.oid, a.attnum))
FROM tree JOIN pg_class AS c ON c.oid = tree.oid
    LEFT JOIN pg_attribute AS a ON a.attrelid = tree.oid AND a.attnum > 0 AND NOT a.attisdropped"""
"""SQL for a hash of how the rows of the table, its partitions and its descendants are stored.

A rewritten table has another file. A column that was dropped and added again has another number. The default of an
added column is the value of older rows but is not stored in them. Rows store labels of enumerations as numbers.
"""


def check_statement(version: int) -> str:
    """A statement that returns one row: first the number of the first reason to refuse, or NULL if there is none.

    The row then has the table's kind, the server, the columns, and a hash of how rows are stored. `version` is the
    server's version: grants on parameters exist since PostgreSQL 15.
    """
    role = _ROLE.format(parameters=_PARAMETERS if version >= 150000 else "")
    return (
        f"WITH RECURSIVE {TREE}, {role}, {_REASONS} "
        f"SELECT (SELECT min(reason) FROM refused), ({_KIND}), ({_SERVER}), ({_COLUMNS}), ({_STORED})"
    )
