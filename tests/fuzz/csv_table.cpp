// csv_table.cpp - any bytes as CSV: what is read is written and read back as the same table, and
// figures are made of it or refused.
#include <cstdlib>

#include "cli/output/table.h"
#include "cli/plot/sweep_figures.h"
#include "tests/fuzz/fuzz.h"

namespace attnforge::fuzz {

int fuzz_one(const std::uint8_t* data, std::size_t size) {
  const std::string text = text_of(data, size);
  cli::Table table;
  if (!accepts([&] { table = cli::parse_csv(text, "file.csv"); })) return 0;
  for (const auto& row : table.rows)
    require(row.size() == table.columns.size(), "a row of another number of cells");
  cli::aligned(table);
  // The first name may look like a comment, a lone cell like an empty line: those are not kept.
  const bool is_kept = table.columns.size() > 1 && !table.columns[0].name.starts_with('#');
  if (is_kept) {
    const std::string written = cli::csv(table);
    const cli::Table again = cli::parse_csv(written, "again.csv");
    require(again.rows == table.rows && cli::csv(again) == written,
            "another table is read back from " + written);
  }
  accepts([&] { cli::sweep_figures(table); });
  return 1;
}

std::vector<std::string> corpus() {
  return {
      "# made by hand\nproblem,family,time_us\n\"fwd bf16 seqlen=512 head_dim=64\",fwd_naive,12.5\n"
      "\"fwd bf16 seqlen=1024 head_dim=64\",fwd_naive,50\n",
      "a,b\r\n\"x \"\"y\"\" \n z\",\r\n", "one\n1\n\n2\n", ",\n,\n",
      "date,gpu,problem,asked,family,dtype,batch,num_heads_q,seqlen_q,seqlen_kv,"
      "head_dim,head_dim_v,time_us,tflops,gbps,workspace_bytes,memory_bytes,error\n"
      "2025,H200,fwd bf16 seqlen=512 head_dim=64,,fwd_mma_sm80,bf16,1,1,512,512,64,64,10,1,1,0,"
      "100,\n"
      "2025,H200,fwd bf16 seqlen=1024 head_dim=64,,fwd_mma_sm80,bf16,1,1,1024,1024,64,64,40,1,"
      "1,0,100,\n"};
}

std::vector<std::string> words() {
  return {",",
          "\"",
          "\"\"",
          "\n",
          "\r\n",
          "#",
          "problem",
          "family",
          "time_us",
          "error",
          "fwd bf16 seqlen=2048 head_dim=64",
          "nan",
          "-1",
          "1e308"};
}

}  // namespace attnforge::fuzz
