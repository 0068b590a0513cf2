// SPDX-License-Identifier: Apache-2.0
/* A file of a test's own, which is gone with the object. */
#ifndef KOLO_TESTS_TEMP_FILE_H
#define KOLO_TESTS_TEMP_FILE_H

#include <cstdlib>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>

class TempFile
{
  public:
    explicit TempFile(const std::string &content = "")
    {
        const int fd = mkstemp(path_.data());
        EXPECT_GE(fd, 0);
        EXPECT_EQ(static_cast<ssize_t>(content.size()), write(fd, content.data(), content.size()));
        close(fd);
    }
    TempFile(const TempFile &) = delete;
    TempFile &operator=(const TempFile &) = delete;
    ~TempFile()
    {
        unlink(path_.c_str());
    }
    const std::string &path() const
    {
        return path_;
    }

  private:
    std::string path_ = testing::TempDir() + "kolo-test-" + std::string(6, 'X'); // see mkstemp(3)
};

#endif
