-- from_2_after.sql - copies everything, by tables and not by indexes, which are made anew. A cubin keeps the checksum of its
-- bytes, taken when it was compiled, and gets one that binds it to its key: the key stands in the same row, so nothing has
-- to be compiled again. checksum() is the library's. A row that breaks a rule (damage: nobody could store it) stays behind.
-- Leases are of processes of the past.
INSERT INTO problems SELECT id, text FROM version_2_problems NOT INDEXED;
INSERT INTO device_classes SELECT id, text, sm FROM version_2_device_classes NOT INDEXED;
INSERT OR IGNORE INTO tries SELECT * FROM version_2_tries NOT INDEXED;
INSERT INTO searches SELECT * FROM version_2_searches;
INSERT OR IGNORE INTO cubins (id, source_digest, arch, nvrtc, kernel_symbol, registers, smem_static_bytes, stack_bytes,
                    spill_store_bytes, spill_load_bytes, wgmma_serialized, compile_ms, log, created_at, code_bytes,
                    code_checksum, row_checksum, code, source)
SELECT id, source_digest, arch, nvrtc, kernel_symbol, registers, smem_static_bytes, stack_bytes, spill_store_bytes,
       spill_load_bytes, wgmma_serialized, compile_ms, log, created_at, code_bytes, code_checksum,
       checksum(source_digest, arch, nvrtc, kernel_symbol, registers, smem_static_bytes, stack_bytes, spill_store_bytes,
                spill_load_bytes, wgmma_serialized, code_bytes, code_checksum),
       code, source
FROM version_2_cubins NOT INDEXED;

DROP TABLE version_2_leases;
DROP TABLE version_2_cubins;
DROP TABLE version_2_searches;
DROP TABLE version_2_tries;
DROP TABLE version_2_rigors;
DROP TABLE version_2_device_classes;
DROP TABLE version_2_problems;
