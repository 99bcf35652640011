-- from_3.sql - configs lose the words that repeat their problem ("dtype=2", "head_dim=128"): the problem has them, and a config
-- is what is searched. Tables stay as they are. A step from versions 1 and 2 as well. without_shape_words() is the
-- library's. Two rows of one key that only such words told apart (damage: nobody could store both) become one.
UPDATE OR IGNORE tries NOT INDEXED SET config = without_shape_words(config) WHERE config <> without_shape_words(config);
DELETE FROM tries WHERE config <> without_shape_words(config);
UPDATE searches SET winner = without_shape_words(winner) WHERE winner <> without_shape_words(winner);
