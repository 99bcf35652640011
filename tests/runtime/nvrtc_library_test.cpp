// nvrtc_library_test.cpp - where NVRTC is looked for, and what is said when it is not there.
#include "runtime/compile/nvrtc_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "runtime/compile/compiler.h"

namespace attnforge {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

NvrtcSearch search_in(const std::map<std::string, std::string>& environment) {
  return nvrtc_search([&](const char* name) -> const char* {
    const auto it = environment.find(name);
    return it == environment.end() ? nullptr : it->second.c_str();
  });
}

/// A folder of its own for one test, removed at the end.
class NvrtcPlaces : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "attnforge-nvrtc-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string make_library(const std::string& path) {
    const fs::path file = root_ / path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << "not a library";
    return file.string();
  }

  fs::path root_;
};

TEST(NvrtcSearch, NamedLibraryIsTheOnlyPlace) {
  const NvrtcSearch search = search_in(
      {{"ATTNFORGE_NVRTC", "/nowhere/libnvrtc.so"}, {"PATH", "/usr/bin"}});
  EXPECT_EQ(search.named, "/nowhere/libnvrtc.so");
  EXPECT_TRUE(search.places.empty());
}

TEST(NvrtcSearch, LoaderIsAskedFirstNewestFirst) {
  const std::vector<std::string> places = search_in({}).places;
  ASSERT_GE(places.size(), 3u);
  EXPECT_EQ(places[0], "libnvrtc.so.13");
  EXPECT_EQ(places[1], "libnvrtc.so.12");
  EXPECT_EQ(places[2], "libnvrtc.so");
}

TEST_F(NvrtcPlaces, ToolkitsWheelsAndVirtualEnvironmentsAreFound) {
  const std::string toolkit = make_library("cuda/lib64/libnvrtc.so.12");
  const std::string venv = make_library(
      "venv/lib/python3.11/site-packages/nvidia/cu13/lib/libnvrtc.so.13");
  const std::string python = make_library(
      "py/lib/python3.9/dist-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  make_library("py/bin/python3");
  const std::string user = make_library(
      "home/.local/lib/python3.12/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  const std::string advised = make_library(
      "home/.local/share/attnforge/nvrtc/lib/python3.12/site-packages/nvidia/cu13/lib/"
      "libnvrtc.so.13");
  const std::vector<std::string> places = search_in(
                                              {{"CUDA_HOME", (root_ / "cuda").string()},
                                               {"VIRTUAL_ENV", (root_ / "venv").string()},
                                               {"PATH", "/nowhere:" + (root_ / "py/bin").string()},
                                               {"HOME", (root_ / "home").string()}})
                                              .places;
  for (const std::string& expected : {toolkit, venv, python, user, advised})
    EXPECT_THAT(places, Contains(expected));
  EXPECT_LT(std::find(places.begin(), places.end(), toolkit),
            std::find(places.begin(), places.end(), venv));
}

TEST_F(NvrtcPlaces, OneFileUnderTwoNamesIsTriedOnce) {
  const std::string file = make_library("cuda/lib64/libnvrtc.so.12");
  fs::create_symlink(file, root_ / "cuda/lib64/libnvrtc.so");
  const std::vector<std::string> places = search_in({{"CUDA_HOME", (root_ / "cuda").string()}})
                                              .places;
  EXPECT_EQ(
      std::count_if(places.begin(), places.end(),
                    [&](const std::string& place) { return place.rfind(root_.string(), 0) == 0; }),
      1);
}

TEST_F(NvrtcPlaces, NonsenseInTheVariableIsNamedWithAdvice) {
  const NvrtcLibrary missing = open_nvrtc({.named = "/nowhere/libnvrtc.so", .places = {}});
  EXPECT_THAT(missing.problem, AllOf(HasSubstr("ATTNFORGE_NVRTC names /nowhere/libnvrtc.so"),
                                     HasSubstr("No such file"), HasSubstr("unset it")));
  const std::string text_file = make_library("libnvrtc.so");
  EXPECT_THAT(open_nvrtc({.named = text_file, .places = {}}).problem,
              HasSubstr("ATTNFORGE_NVRTC names " + text_file));
  EXPECT_THAT(open_nvrtc({.named = "libc.so.6", .places = {}}).problem,
              AllOf(HasSubstr("not a usable NVRTC"), HasSubstr("nvrtcCompileProgram")));
}

TEST_F(NvrtcPlaces, NothingFoundListsWhatWasTried) {
  const std::string bad = make_library("libnvrtc.so.13");
  const NvrtcLibrary library = open_nvrtc(
      {.named = std::nullopt, .places = {"libnvrtc-of-nobody.so", bad}});
  EXPECT_THAT(library.problem,
              AllOf(HasSubstr("NVRTC (libnvrtc.so) was not found"), HasSubstr("ATTNFORGE_NVRTC"),
                    HasSubstr("\n  libnvrtc-of-nobody.so: "), HasSubstr("\n  " + bad + ": ")));
}

// Debian's and Ubuntu's pip refuses to install outside of a virtual environment.
TEST(NvrtcSearch, AdviceInstallsIntoAVirtualEnvironment) {
  const std::string problem = open_nvrtc({.named = std::nullopt, .places = {}}).problem;
  const std::size_t venv = problem.find("python3 -m venv"), pip = problem.find("pip install");
  ASSERT_NE(venv, std::string::npos) << problem;
  ASSERT_LT(venv, pip) << problem;
  const std::size_t word = problem.rfind(' ', pip) + 1;
  EXPECT_EQ(problem.substr(word, pip - word), "~/.local/share/attnforge/nvrtc/bin/") << problem;
  EXPECT_EQ(problem.find("pip install", pip + 1), std::string::npos) << problem;
}

TEST(NvrtcLibrary, PlacesThatDoNotWorkAreSkipped) {
  ASSERT_TRUE(nvrtc_facts().available) << nvrtc_facts().problem;
  const NvrtcLibrary library = open_nvrtc(
      {.named = std::nullopt,
       .places = {"libnvrtc-of-nobody.so", "libc.so.6", nvrtc_facts().path}});
  EXPECT_EQ(library.problem, "");
  EXPECT_EQ(library.path, nvrtc_facts().path);
  EXPECT_EQ(library.major, nvrtc_facts().major);
}

}  // namespace
}  // namespace attnforge
