BEGIN TRANSACTION;
CREATE TABLE journal_schema (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT journal_schema_pkc PRIMARY KEY (version_num)
);
COMMIT;
