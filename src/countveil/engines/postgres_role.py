"""What a role of PostgreSQL could do beyond reading: everything that it or a role that it can become is granted.

What every role may do by default is no fault: connect, temporary tables, the catalogues, functions.
"""

from __future__ import annotations

GRANT = "use a role of its own: GRANT SELECT ON the table TO it, and nothing else"
SYSTEM = "('pg_catalog', 'information_schema')"

EXCESS = f"""
WITH reached AS (
    SELECT oid, left(rolname, 3) = 'pg_' AS predefined,
        rolsuper OR rolcreaterole OR rolcreatedb OR rolbypassrls OR rolreplication AS above
    FROM pg_roles
    WHERE pg_has_role(session_user, oid, 'MEMBER') OR pg_has_role(current_user, oid, 'MEMBER')
), acls AS (
    SELECT c.relacl AS acl, ARRAY['SELECT'] AS fine, n.nspname IN {SYSTEM} AS system, 3 AS reason
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    UNION ALL
    SELECT a.attacl, ARRAY['SELECT'], n.nspname IN {SYSTEM}, 3
    FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE a.attacl IS NOT NULL
    UNION ALL SELECT nspacl, ARRAY['USAGE'], FALSE, 4 FROM pg_namespace
    UNION ALL SELECT datacl, ARRAY['CONNECT', 'TEMPORARY'], FALSE, 4 FROM pg_database
    UNION ALL SELECT spcacl, ARRAY[]::text[], FALSE, 4 FROM pg_tablespace
    UNION ALL SELECT srvacl, ARRAY[]::text[], FALSE, 5 FROM pg_foreign_server
    UNION ALL SELECT fdwacl, ARRAY[]::text[], FALSE, 5 FROM pg_foreign_data_wrapper
    UNION ALL SELECT proacl, ARRAY[]::text[], TRUE, 5 FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace
), granted AS (
    SELECT acls.reason
    FROM acls, aclexplode(acls.acl) AS item
    WHERE (item.grantee IN (SELECT oid FROM reached) OR item.grantee = 0 AND NOT acls.system)
        AND (item.is_grantable OR item.privilege_type <> ALL (acls.fine))
)
SELECT reason FROM granted
UNION ALL SELECT 0 FROM reached WHERE above
UNION ALL SELECT 1 FROM reached WHERE predefined
UNION ALL
SELECT 2 FROM pg_shdepend AS d LEFT JOIN pg_class AS c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
WHERE d.refclassid = 'pg_authid'::regclass AND d.refobjid IN (SELECT oid FROM reached) AND d.deptype = 'o'
    AND d.dbid IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
    AND coalesce(c.relpersistence, 'p') <> 't'
ORDER BY 1 LIMIT 1
"""
"""The number of the first reason to refuse the role, if there is one. Owners are looked up where the server keeps track
of whom it needs; the grants of an object include those of its columns. 0 stands for everyone among the grantees."""

REASONS = (
    "it is above the rules, or can become a role that is (superuser, CREATEROLE, CREATEDB, REPLICATION, BYPASSRLS)",
    "it is a member of a role of the server's own (pg_...)",
    "it owns something, or can become a role that does",
    "it may write to a table or pass a grant on",
    "it may create things in a schema or database (before PostgreSQL 15: REVOKE CREATE ON SCHEMA public FROM PUBLIC)",
    "it may use foreign servers or functions that others may not",
)
