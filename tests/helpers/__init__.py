"""What tests share: a module for each subject, which imports no other. dbt takes seconds."""
