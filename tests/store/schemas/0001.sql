BEGIN TRANSACTION;
CREATE TABLE journal_schema (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT journal_schema_pkc PRIMARY KEY (version_num)
);
INSERT INTO "journal_schema" VALUES('0001');
CREATE TABLE logs (
	digest TEXT NOT NULL, 
	size_bytes BIGINT NOT NULL, 
	content BLOB NOT NULL, 
	PRIMARY KEY (digest)
);
INSERT INTO "logs" VALUES('b2:982d49f3314149a42cbe2e3a219766a35d3515e337d4ac0e469abda97c4f511d',24,X'789CF3F473F35728C94855C8C94F57C84F532829CA4CCC5130E402006029077C');
CREATE TABLE runs (
	run TEXT NOT NULL, 
	made_by TEXT NOT NULL, 
	started_utc TEXT NOT NULL, 
	saved_utc TEXT NOT NULL, 
	command TEXT NOT NULL, 
	outcome TEXT, 
	verified BOOLEAN, 
	record TEXT NOT NULL, 
	PRIMARY KEY (run)
);
INSERT INTO "runs" VALUES('20260101-000000-aaaaaa','fix','2026-01-01T00:00:00+00:00','2026-12-01T15:45:39+00:00','vllm serve some/model','served',1,'{"schema":1,"kind":"record","run":"20260101-000000-aaaaaa","made_by":"fix","started_utc":"2026-01-01T00:00:00+00:00","fitserve_version":"0.1.0","command":["vllm","serve","some/model"],"environment":{},"trials":[{"n":1,"argv":["vllm"],"env":{},"change":null,"outcome":"failed","cause":"no-kv-cache-blocks","exit_code":null,"signal":null,"seconds":1.5,"phases":[],"memory":{"peak_rss_bytes":0,"peak_gpu_bytes":null,"printed":{}},"diagnosis":null,"log_path":null,"url":null},{"n":2,"argv":["vllm"],"env":{},"change":{"flag":"max_model_len","from":null,"to":76304,"why":"76,304 tokens fit","cost":"capacity"},"outcome":"served","cause":null,"exit_code":null,"signal":null,"seconds":2.5,"phases":[],"memory":{"peak_rss_bytes":0,"peak_gpu_bytes":null,"printed":{}},"diagnosis":null,"log_path":null,"url":null}],"logs":{"1":"b2:982d49f3314149a42cbe2e3a219766a35d3515e337d4ac0e469abda97c4f511d"},"verification":{"schema":1,"kind":"verification","url":"http://127.0.0.1:8000","model":null,"served_names":[],"max_model_len":null,"server_version":null,"checks":[{"name":"models","passed":true,"expected":"a list","actual":"a list","seconds":0.1,"prompt_tokens":null,"output_tokens":null,"concurrency":1,"error_type":null}],"numbers":{}},"outcome":"served","reason":"","final_command":["vllm","serve","some/model","--max-model-len","76304"],"seconds":4.0}');
CREATE TABLE trials (
	run TEXT NOT NULL, 
	n INTEGER NOT NULL, 
	outcome TEXT NOT NULL, 
	cause TEXT, 
	flag TEXT, 
	seconds FLOAT NOT NULL, 
	log TEXT, 
	PRIMARY KEY (run, n), 
	FOREIGN KEY(run) REFERENCES runs (run) ON DELETE CASCADE, 
	FOREIGN KEY(log) REFERENCES logs (digest)
);
INSERT INTO "trials" VALUES('20260101-000000-aaaaaa',1,'failed','no-kv-cache-blocks',NULL,1.5,'b2:982d49f3314149a42cbe2e3a219766a35d3515e337d4ac0e469abda97c4f511d');
INSERT INTO "trials" VALUES('20260101-000000-aaaaaa',2,'served',NULL,'max_model_len',2.5,NULL);
CREATE INDEX ix_trials_log ON trials (log);
COMMIT;
